"""What a card says about the machine: device, cores, versions. No host name, user, path or environment variable."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from pathlib import Path

import torch
import torch.distributed as dist


def placement() -> dict[str, object]:
    """Where this rank runs: host (a digest, until the card numbers the hosts), cores, threads, device."""
    return {"host": host_digest(), "cores": cores(), "scheduling": scheduling(), "threads": torch.get_num_threads(),
            "device": device()}  # fmt: skip


def device() -> dict[str, object]:
    """The device that does the work: the current CUDA device, else the CPU."""
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return {"kind": "gpu", "name": properties.name, "memory_bytes": properties.total_memory,
                "num_sms": properties.multi_processor_count}  # fmt: skip
    return {"kind": "cpu", "name": cpu_model(), "cores": os.cpu_count(),
            "capability": torch.backends.cpu.get_cpu_capability()}  # fmt: skip


def cpu_model() -> str | None:
    """As the kernel names it; None where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine() or None


def versions() -> dict[str, str | None]:
    """Of what decides how fast a step is."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "kernel": platform.release().split("-")[
            0
        ],  # the number only: what follows may name a distribution's build host
    }


def scheduling() -> str:
    """The kernel's policy for this thread: "batch" threads do not preempt others when they wake."""
    return {os.SCHED_OTHER: "other", os.SCHED_BATCH: "batch"}.get(os.sched_getscheduler(0), "another")


def cores() -> list[int]:
    """Cores this process may run on."""
    return sorted(os.sched_getaffinity(0))


def host_digest() -> str:
    """Tells ranks of one host from ranks of another; compared while a card is made, never kept."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    named = boot.read_text(encoding="utf-8") if boot.is_file() else socket.gethostname()
    return hashlib.sha256(named.encode()).hexdigest()


def rank_and_world_size() -> tuple[int, int]:
    """(0, 1) outside a process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def backend() -> str | None:
    """gloo, nccl, ...; None outside a process group."""
    return str(dist.get_backend()) if dist.is_available() and dist.is_initialized() else None
