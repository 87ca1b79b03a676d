"""What a card states about a rank's place: host, cores, device, versions; no host name, user, path or variable."""

import hashlib
import os
import platform
import re
import shutil
import socket
import subprocess
from pathlib import Path

import torch
import torch.distributed as dist

from gnnperf.record import host_state

# Which device a rank works on. Not every program makes its device the current one.


def cuda_device() -> int | None:
    """Index of the CUDA device this rank works on, or None while it has not used any.

    The device its process group is bound to; else the one that holds most of its memory; else, before it holds any,
    the current one, or, if that is only the default, the one that its launcher means for it.
    """
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    grouped = dist.is_available() and dist.is_initialized()
    bound = getattr(dist.group.WORLD, "bound_device_id", None) if grouped else None
    if isinstance(bound, torch.device) and bound.type == "cuda" and bound.index is not None:
        return bound.index  # of `init_process_group(device_id=…)`
    count, current = torch.cuda.device_count(), torch.cuda.current_device()
    held_bytes = [torch.cuda.memory_allocated(index) for index in range(count)]
    if max(held_bytes) > 0:
        return max(range(count), key=lambda index: (held_bytes[index], index == current))
    meant = int(os.environ.get("LOCAL_RANK", current))
    return meant if current == 0 and meant < count else current


def barrier() -> None:
    """Wait for all ranks; NCCL, left as it is, guesses the device from the rank's number."""
    index = cuda_device()
    if index is not None and dist.get_backend() == "nccl":
        dist.barrier(device_ids=[index])
    else:
        dist.barrier()


POLICIES = ("other", "batch", "idle", "fifo", "rr")  # of the kernel, SCHED_OTHER and so on


def placement() -> dict[str, object]:
    """Where this rank runs: host (a digest, until the card numbers the hosts), cores, threads, device."""
    return {"host": host_digest(), "cores": sorted(os.sched_getaffinity(0)), "scheduling": scheduling(),
            "threads": torch.get_num_threads(), "device": device()}  # fmt: skip


def device() -> dict[str, object]:
    """The device that does the work: this rank's CUDA device if it uses one, else the CPU."""
    index = cuda_device()
    if index is not None:
        return gpu_facts(index)
    return {"kind": "cpu", "name": host_state.cpu_model(), "cores": os.cpu_count(),
            "capability": torch.backends.cpu.get_cpu_capability()}  # fmt: skip


def device_clocks() -> dict[str, object]:
    """`clocks` of a GPU, now; a CPU's are among its host's facts."""
    index = cuda_device()
    return {} if index is None else {"clocks": gpu_clocks(index)}


def versions() -> dict[str, str | None]:
    """Of what decides how fast a step is; gloo has no version of its own (it is part of torch)."""
    has_nccl = torch.cuda.is_available() and dist.is_available() and dist.is_nccl_available()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,
        "gloo": None,
        "driver": driver_version() if torch.cuda.is_available() else None,
        "kernel": host_state.kernel(),
    }


def scheduling() -> str:
    """The kernel's policy for this thread: "batch" threads do not preempt others when they wake."""
    policy = os.sched_getscheduler(0) & ~getattr(os, "SCHED_RESET_ON_FORK", 0)
    return next((name for name in POLICIES if getattr(os, f"SCHED_{name.upper()}", None) == policy), "another")


def host_digest() -> str:
    """Tells ranks of one host from ranks of another; compared while a card is made, never kept.

    Ranks in different network namespaces reach each other through a network, so these count as different hosts.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    named = boot.read_text(encoding="utf-8") if boot.is_file() else socket.gethostname()
    namespace = Path("/proc/self/ns/net")
    network = str(namespace.stat().st_ino) if namespace.exists() else ""
    return hashlib.sha256((named + network).encode()).hexdigest()


def rank_and_world_size() -> tuple[int, int]:
    """(0, 1) outside a process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def backend() -> str | None:
    """gloo, nccl, ...; None outside a process group."""
    return str(dist.get_backend()) if dist.is_available() and dist.is_initialized() else None


# What a card states about a GPU: model, memory, clocks and driver; nothing that names the one device or its host.

DRIVER = Path("/proc/driver/nvidia/version")
QUERIED = {  # column of nvidia-smi -> key of the card
    "clocks.sm": "clock_mhz",
    "clocks.max.sm": "max_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "power.limit": "power_limit_w",
}
TIMEOUT_S = 10.0


def gpu_facts(index: int) -> dict[str, object]:
    """Of one CUDA device."""
    properties = torch.cuda.get_device_properties(index)
    return {
        "kind": "gpu",
        "name": properties.name,
        "index": index,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "num_sms": properties.multi_processor_count,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
    }


def gpu_clocks(index: int) -> dict[str, float | None]:
    """Of one CUDA device, now; null where nvidia-smi is absent or silent."""
    unique = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    query = (f"--id=GPU-{unique}", f"--query-gpu={','.join(QUERIED)}", "--format=csv,noheader,nounits")
    return parse_clocks("" if unique is None else nvidia_smi(*query, timeout_s=TIMEOUT_S))


def nvidia_smi(*arguments: str, timeout_s: float) -> str:
    """What it prints; "" where it is absent or silent."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def parse_clocks(line: str) -> dict[str, float | None]:
    """`1980, 1980, 2619, 700.00` -> the card's keys; what is not a number (`[N/A]`) is null."""
    words = [word.strip() for word in line.strip().split(",")]
    numbers = [float(word) if re.fullmatch(r"\d+(\.\d+)?", word) else None for word in words]
    return dict(zip(QUERIED.values(), [*numbers, *[None] * len(QUERIED)], strict=False))


def driver_version() -> str | None:
    """Of the NVIDIA kernel module, e.g. 550.54.15; None without one."""
    try:
        text = DRIVER.read_text(encoding="utf-8")
    except OSError:
        return None
    return parse_driver(text)


def parse_driver(text: str) -> str | None:
    """The version in what the kernel module states about itself."""
    result = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return result[1] if result else None
