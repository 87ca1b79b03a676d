"""What a card says about a rank's place: host, cores, device, versions; no host name, user, path or variable."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from pathlib import Path

import torch
import torch.distributed as dist

from gnnperf.record import gpu, host
from gnnperf.record.device import cuda_device

POLICIES = {
    "SCHED_OTHER": "other",
    "SCHED_BATCH": "batch",
    "SCHED_IDLE": "idle",
    "SCHED_FIFO": "fifo",
    "SCHED_RR": "rr",
}


def placement() -> dict[str, object]:
    """Where this rank runs: host (a digest, until the card numbers the hosts), cores, threads, device."""
    return {"host": host_digest(), "cores": cores(), "scheduling": scheduling(), "threads": torch.get_num_threads(),
            "device": device()}  # fmt: skip


def device() -> dict[str, object]:
    """The device that does the work: this rank's CUDA device if it uses one, else the CPU."""
    index = cuda_device()
    if index is not None:
        return gpu.gpu_facts(index)
    return {"kind": "cpu", "name": host.cpu_model(), "cores": os.cpu_count(),
            "capability": torch.backends.cpu.get_cpu_capability()}  # fmt: skip


def device_clocks() -> dict[str, object]:
    """`clocks` of a GPU, now; a CPU's are among its host's facts."""
    index = cuda_device()
    return {} if index is None else {"clocks": gpu.gpu_clocks(index)}


def versions() -> dict[str, str | None]:
    """Of what decides how fast a step is; gloo has no version of its own (it is part of torch)."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": _nccl_version(),
        "gloo": None,
        "driver": gpu.driver_version() if torch.cuda.is_available() else None,
        "kernel": host.kernel(),
    }


def _nccl_version() -> str | None:
    if not (torch.cuda.is_available() and dist.is_available() and dist.is_nccl_available()):
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))


def scheduling() -> str:
    """The kernel's policy for this thread: "batch" threads do not preempt others when they wake."""
    policy = os.sched_getscheduler(0) & ~getattr(os, "SCHED_RESET_ON_FORK", 0)
    known = {getattr(os, name): word for name, word in POLICIES.items() if hasattr(os, name)}
    return known.get(policy, "another")


def cores() -> list[int]:
    """Cores this process may run on."""
    return sorted(os.sched_getaffinity(0))


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
