"""What a calibration found, as a device and a cluster in the catalog's own YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from gnnperf.hardware import DeviceSpec, LinkSpec, cluster_from, default_cluster, device_from
from gnnperf.record.calibrate import rates
from gnnperf.record.calibrate.interval import Interval
from gnnperf.record.calibrate.machine import Machine
from gnnperf.record.calibrate.rates import LinkFit
from gnnperf.record.calibrate.rounds import Result

MEMORY_STREAM = "copy"  # half read, half written, as most ops are
NOT_MEASURED = "not measured: "
DIGITS = 5


def device_mapping(machine: Machine, results: Iterable[Result], provenance: Mapping[str, str]) -> dict[str, object]:
    """The device file's content; it loads through gnnperf.hardware.

    Rates are sustained already, so that both shares are 1.
    """
    found = list(results)
    flops = rates.flops_per_s(found, machine.kind)
    streams = rates.bandwidths(found, machine.cache_bytes)
    floor = rates.launch_floor_us(found)
    measured = {
        **{f"flops_per_s.{dtype}": rate for dtype, rate in flops.items()},
        **{f"bandwidth_bytes_per_s.{stream}": rate for stream, rate in streams.items()},
        "launch_floor_us": floor,
    }
    content: dict[str, object] = {
        "name": machine.name, "kind": machine.kind, "aliases": [machine.label],
        "flops_per_s": {dtype: _rounded(rate.value) for dtype, rate in flops.items()},
        "memory_bandwidth_bytes_per_s": _rounded(streams[MEMORY_STREAM].value),
        "l2_bytes": machine.cache_bytes, "num_sms": machine.num_sms, "clock_hz": machine.clock_hz,
        "memory_bytes": machine.memory_bytes, "power_limit_w": machine.power_limit_w,
        "launch_floor_us": _rounded(floor.value), "sustained_flops_share": 1.0, "sustained_bandwidth_share": 1.0,
        "source": "gnnperf calibrate: sustained rates, measured" + (
            " on one core with one thread, as a recorded rank has it" if machine.kind == "cpu" else ""),
        "measured": _measured(measured), "host": _measured(rates.host_costs(found)), "provenance": dict(provenance),
    }  # fmt: skip
    device_from(content, "device.yaml")
    return content


def _measured(found: Mapping[str, Interval]) -> dict[str, dict[str, float]]:
    return {name: {key: _rounded(value) for key, value in asdict(interval).items()} for name, interval in found.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def cluster_mapping(
    machine: Machine, device: DeviceSpec, results: Iterable[Result], across: str | None, provenance: Mapping[str, str]
) -> dict[str, object]:
    """The cluster file's content; links that were not measured are those of the device's default cluster, and say so.

    Args:
        machine: the device at hand.
        device: its specification.
        results: of send/receive: all links but `across` join ranks of one node, the fastest of them is `intra`.
        across: the link between nodes that was measured, if any.
        provenance: when, with what.
    """
    found = list(results)
    default, fits, host_link = default_cluster(device), rates.links(found), rates.host_link(found)
    inside = {name: fit for name, fit in fits.items() if name != across}
    best = max(inside, key=lambda name: inside[name].bandwidth_bytes_per_s, default=None)
    content: dict[str, object] = {
        "name": f"{machine.name}_cluster", "device": device.name,
        "intra": _link(best, inside[best]) if best is not None else _unmeasured(default.intra),
        "inter": _link(across, fits[across]) if across in fits and across is not None else _unmeasured(default.inter),
        "host_link": _unmeasured(default.host_link) if host_link is None else _link("pinned_copy", host_link),
        "ranks_per_node": max(machine.count, 1),
        "default_for": [device.name],
        "metadata": {**provenance, **{f"link {name}": _told(fit) for name, fit in fits.items()}},
    }  # fmt: skip
    cluster_from(content, device, "cluster.yaml")
    return content


def _link(name: str, fit: LinkFit) -> dict[str, object]:
    return {"name": name, "bandwidth_bytes_per_s": _rounded(fit.bandwidth_bytes_per_s),
            "latency_us": _rounded(fit.latency_us), "sustained_bandwidth_share": 1.0,
            "source": f"gnnperf calibrate: {_told(fit)}"}  # fmt: skip


def _told(fit: LinkFit) -> str:
    return (f"{fit.latency_us:.1f} us + bytes / {fit.bandwidth_bytes_per_s / 1e9:.3g} GB/s, "
            f"off by {fit.worst_relative_error:.0%} at most")  # fmt: skip


def _unmeasured(link: LinkSpec) -> dict[str, object]:
    return {**asdict(link), "source": NOT_MEASURED + link.source.strip()}
