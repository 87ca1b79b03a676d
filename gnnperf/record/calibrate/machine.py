"""The device that is calibrated: what it is called, its sizes, its clocks, and the versions that drive it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gnnperf.core import InputError
from gnnperf.record import gpu, host
from gnnperf.record.machine import versions

DEVICES = ("cpu", "cuda")
FP8_SINCE = (8, 9)  # compute capability
DEFAULT_CACHE_BYTES = 32 * 2**20  # where neither the kernel nor CUDA says


@dataclass(frozen=True)
class Machine:
    """The device at hand.

    Attributes:
        torch_device: "cpu" or "cuda".
        kind: "cpu" or "gpu".
        label: as its maker calls it.
        cache_bytes: last-level cache.
        num_sms: SMs; CPU: 1, because a rank has one core.
        clock_hz: highest that is known.
        memory_bytes: capacity.
        power_limit_w: None unknown.
        count: how many there are: GPUs, or cores this process may use.
        fp8: whether it multiplies in float8.
    """

    torch_device: str
    kind: str
    label: str
    cache_bytes: int
    num_sms: int
    clock_hz: float
    memory_bytes: float
    power_limit_w: float | None
    count: int
    fp8: bool

    @property
    def name(self) -> str:
        """For the catalog: letters, digits and underscores."""
        return "calibrated_" + re.sub(r"[^a-z0-9]+", "_", self.label.lower()).strip("_")


def machine(device: str | None) -> Machine:
    """The CUDA device if there is one, else the CPU; or the one asked for.

    Raises:
        InputError: CUDA is asked for and not there, or the clock is not known.
    """
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen == "cuda" and not torch.cuda.is_available():
        raise InputError("this machine has no CUDA device that torch can use", where="--device cuda",
                         remedy="leave --device out, or install a CUDA build of torch")  # fmt: skip
    return _gpu() if chosen == "cuda" else _cpu()


def _cpu() -> Machine:
    facts: Mapping[str, Any] = host.host_facts()
    clock_mhz = facts["max_clock_mhz"] or facts["clock_mhz"]
    if clock_mhz is None or facts["memory_bytes"] is None:
        raise InputError("the kernel does not tell this CPU's clock and memory", where="/proc/cpuinfo and meminfo")
    caches: Mapping[str, int] = facts["cache_bytes"]
    return Machine("cpu", "cpu", str(facts["cpu"] or "cpu"), max(caches.values(), default=DEFAULT_CACHE_BYTES), 1,
                   clock_mhz * 1e6, float(facts["memory_bytes"]), None,
                   len(os.sched_getaffinity(0)), False)  # fmt: skip


def _gpu() -> Machine:
    facts: Mapping[str, Any] = gpu.gpu_facts(torch.cuda.current_device())
    clocks = gpu.gpu_clocks(torch.cuda.current_device())
    clock_mhz = clocks["max_clock_mhz"] or _stated_clock_mhz()
    return Machine("cuda", "gpu", str(facts["name"]), int(facts["l2_bytes"] or DEFAULT_CACHE_BYTES),
                   int(facts["num_sms"]), clock_mhz * 1e6, float(facts["memory_bytes"]), clocks["power_limit_w"],
                   torch.cuda.device_count(), torch.cuda.get_device_capability() >= FP8_SINCE)  # fmt: skip


def _stated_clock_mhz() -> float:
    khz = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "clock_rate", None)
    if khz is None:
        raise InputError("neither nvidia-smi nor torch tells this GPU's clock", where="--device cuda",
                         remedy="put nvidia-smi on the PATH")  # fmt: skip
    return float(khz) / 1e3


def clocks(torch_device: str) -> dict[str, float | None]:
    """Of the device, now, MHz (and watts for a GPU's limit)."""
    return gpu.gpu_clocks(torch.cuda.current_device()) if torch_device == "cuda" else {"clock_mhz": host.clock_mhz()}


def software() -> dict[str, str | None]:
    """Versions: python, torch, cuda, nccl, gloo, driver, kernel."""
    return versions()
