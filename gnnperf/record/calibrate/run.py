"""A calibration, from the machine at hand to the files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from gnnperf.core import InputError, replacing_folder
from gnnperf.hardware import DeviceSpec, LinkSpec, cluster_from, default_cluster, device_from, yaml_text
from gnnperf.record.calibrate import rates
from gnnperf.record.calibrate.compare import OPS_FILE
from gnnperf.record.calibrate.interval import Interval
from gnnperf.record.calibrate.machine import Machine, clocks, software
from gnnperf.record.calibrate.op_table import parquet_bytes, rows
from gnnperf.record.calibrate.plan import Ask, job_for, link_across
from gnnperf.record.calibrate.point import to_json
from gnnperf.record.calibrate.rates import LinkFit
from gnnperf.record.calibrate.rounds import Result, results, run_rounds
from gnnperf.record.calibrate.topology import peer_access, read_topology

# The files of a calibration: a folder that is whole or not there.

DEVICE_FILE, CLUSTER_FILE, ROUNDS_FILE = "device.yaml", "cluster.yaml", "calibration.json"
OWN = (DEVICE_FILE, CLUSTER_FILE, OPS_FILE, ROUNDS_FILE)


def check_out(out: Path, overwrite: bool) -> None:
    """Before anything is measured.

    Raises:
        InputError: `out` exists and may not be overwritten, holds other files, or cannot be made.
    """
    if out.exists() and not out.is_dir():
        raise InputError("is a file", where=str(out), allowed="a directory to write to")
    held = sorted(p.name for p in out.iterdir()) if out.is_dir() else []
    foreign = [name for name in held if name not in OWN]
    if foreign:
        raise InputError(f"holds other files ({foreign[0]!r})", where=str(out), remedy="choose a new directory")
    if held and not overwrite:
        raise InputError("holds a calibration already", where=str(out), remedy="choose another, or add --overwrite")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise _unwritable(out, error) from None


def write(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the folder: all of it, or nothing is changed.

    Raises:
        InputError: it cannot be written.
    """
    with replacing_folder(out) as temporary:
        for name, content in files.items():
            (temporary / name).write_bytes(content)


def _unwritable(out: Path, error: OSError) -> InputError:
    return InputError(f"cannot be written ({error.strerror or error})", where=str(out),
                      remedy="choose a directory you may write to, with space left")  # fmt: skip


# What a calibration found, as a device and a cluster in the catalog's own YAML.

MEMORY_STREAM = "copy"  # half read, half written, as most ops are
NOT_MEASURED = "not measured: "
DIGITS = 5


def device_mapping(machine: Machine, results: Iterable[Result], provenance: Mapping[str, str]) -> dict[str, object]:
    """The device file's content; it loads through gnnperf.hardware.

    Rates are sustained already, so that both shares are 1.
    """
    result = list(results)
    flops = rates.flops_per_s(result, machine.kind)
    streams = rates.bandwidths(result, machine.cache_bytes)
    floor = rates.launch_floor_us(result)
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
        "measured": _measured(measured), "host": _measured(rates.host_costs(result)), "provenance": dict(provenance),
    }  # fmt: skip
    device_from(content, "device.yaml")
    return content


def _measured(result: Mapping[str, Interval]) -> dict[str, dict[str, float]]:
    return {
        name: {key: _rounded(value) for key, value in asdict(interval).items()} for name, interval in result.items()
    }


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
    result = list(results)
    default, fits, host_link = default_cluster(device), rates.links(result), rates.host_link(result)
    inside = {name: fit for name, fit in fits.items() if name != across}
    best = max(inside, key=lambda name: inside[name].bandwidth_bytes_per_s, default=None)
    content: dict[str, object] = {
        "name": f"{machine.name}_cluster", "device": device.name,
        "intra": _link(best, inside[best]) if best is not None else _unmeasured(default.intra),
        "inter": _link(across, fits[across]) if across in fits and across is not None else _unmeasured(default.inter),
        "host_link": _unmeasured(default.host_link) if host_link is None else _link("pinned_copy", host_link),
        "ranks_per_node": max(machine.count, 1),
        "default_for": [device.name],
        "metadata": {**provenance, **{f"link {name}": _predicted(fit) for name, fit in fits.items()}},
    }  # fmt: skip
    cluster_from(content, device, "cluster.yaml")
    return content


def _link(name: str, fit: LinkFit) -> dict[str, object]:
    return {"name": name, "bandwidth_bytes_per_s": _rounded(fit.bandwidth_bytes_per_s),
            "latency_us": _rounded(fit.latency_us), "sustained_bandwidth_share": 1.0,
            "source": f"gnnperf calibrate: {_predicted(fit)}"}  # fmt: skip


def _predicted(fit: LinkFit) -> str:
    return (f"{fit.latency_us:.1f} us + bytes / {fit.bandwidth_bytes_per_s / 1e9:.3g} GB/s, "
            f"off by {fit.worst_relative_error:.0%} at most")  # fmt: skip


def _unmeasured(link: LinkSpec) -> dict[str, object]:
    return {**asdict(link), "source": NOT_MEASURED + link.source.strip()}


def calibrate(out: Path, machine: Machine, ask: Ask, minutes: float, overwrite: bool) -> list[Result]:
    """Measure, and write the folder.

    Args:
        out: the folder.
        machine: the device at hand.
        ask: what to measure.
        minutes: of measuring.
        overwrite: an earlier calibration there is replaced.

    Raises:
        InputError: the folder may not be written, or an op does not run.
    """
    check_out(out, overwrite)
    before, began = clocks(machine.torch_device), datetime.now(UTC)
    result = results(run_rounds(job_for(machine, ask), minutes))
    facts: dict[str, object] = {
        "began": began.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "clocks_before": before, "clocks_after": clocks(machine.torch_device), "versions": software(),
        **_topology(machine),
    }  # fmt: skip
    files = {OPS_FILE: parquet_bytes(rows(result, _columns(machine))), ROUNDS_FILE: _rounds_bytes(result, facts)}
    if ask.ops is None:
        files |= _spec_files(machine, ask, result, _provenance(facts))
    write(out, files)
    return result


def _spec_files(
    machine: Machine, ask: Ask, result: Sequence[Result], provenance: Mapping[str, str]
) -> dict[str, bytes]:
    content = device_mapping(machine, result, provenance)
    files = {DEVICE_FILE: yaml_text(content).encode()}
    if ask.ranks > 1 or machine.kind == "gpu":
        device = device_from(content, DEVICE_FILE)
        files[CLUSTER_FILE] = yaml_text(cluster_mapping(machine, device, result, link_across(ask), provenance)).encode()
    return files


def _columns(machine: Machine) -> dict[str, object]:
    result = software()
    return {"device": machine.label, "torch_version": result["torch"], "cuda_version": result["cuda"],
            "driver_version": result["driver"]}  # fmt: skip


def _topology(machine: Machine) -> dict[str, object]:
    if machine.kind != "gpu":
        return {}
    links = {f"{a}-{b}": link for (a, b), link in read_topology(machine.count).items()}
    return {"gpu_links": links, "peer_access": {f"{a}-{b}": ok for (a, b), ok in peer_access(machine.count).items()}}


def _provenance(facts: Mapping[str, object]) -> dict[str, str]:
    """Text by text, as the YAML of specifications has it; what is unknown is left out."""
    flat: dict[str, object] = {}
    for key, value in facts.items():
        flat |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return {key: str(value) for key, value in flat.items() if value is not None}


def _rounds_bytes(result: Sequence[Result], facts: Mapping[str, object]) -> bytes:
    """All rounds' medians, so that intervals can be computed anew."""
    ways = [{"point": json.loads(to_json(r.way.point)), "cache": str(r.way.cache),
             "launch_included": r.way.launch_included, "round_medians_us": r.round_medians_us}
            for r in result]  # fmt: skip
    lines = ",\n".join(json.dumps(way) for way in ways)
    return f'{{"facts": {json.dumps(facts)},\n"readings": [\n{lines}\n]}}\n'.encode()
