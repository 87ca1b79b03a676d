"""Roofs of a device (Williams, Waterman, Patterson 2009): its bandwidth, and a FLOP rate per kind of unit and dtype.

attainable(I) = min(rate, bandwidth x I), I FLOPs per byte. Sustained on NVIDIA's GPUs: the shares that were fitted on
products (without the power limit) and streams. Calibrated devices: measured. Others: the shares of the specification.
"""

from dataclasses import dataclass

from gnnperf.analytic.gemm.constants import default_gemm_constants, typical
from gnnperf.analytic.gemm.model import family_of, members_on
from gnnperf.analytic.kernels.dispatch import has_forms
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import stream_share
from gnnperf.hardware import DeviceSpec


@dataclass(frozen=True)
class Roof:
    """One rate: per second."""

    sustained: float  # what well-written kernels reach
    peak: float | None  # of the vendor; None: a calibrated device, of which only the former is known


@dataclass(frozen=True)
class DeviceRoofs:
    """All roofs of a device."""

    device: DeviceSpec  # whose
    bandwidth: Roof  # bytes per second of its memory
    flops: dict[str, Roof]  # key of DeviceSpec.flops_per_s -> FLOPs per second

    def ridge(self, key: str) -> float:
        """FLOPs per byte from which on the sustained FLOP rate is what limits."""
        return self.flops[key].sustained / self.bandwidth.sustained


def roofs_of(device: DeviceSpec) -> DeviceRoofs:
    """The roofs of one device."""
    share = device.sustained_bandwidth_share
    if has_forms(device):
        share = stream_share(device, default_memory_constants())
    flops = {key: _roof(rate, _flops_share(device, key), device) for key, rate in device.flops_per_s.items()}
    return DeviceRoofs(device, _roof(device.memory_bandwidth_bytes_per_s, share, device), flops)


def _roof(rate: float, share: float, device: DeviceSpec) -> Roof:
    return Roof(rate, None) if device.measured else Roof(rate * share, rate)


def _flops_share(device: DeviceSpec, key: str) -> float:
    if not has_forms(device):
        return device.sustained_flops_share
    members = default_gemm_constants()[family_of(key, batched=False)]
    return typical(members_on(device, members, key), "compute_share")
