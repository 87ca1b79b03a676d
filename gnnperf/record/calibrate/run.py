"""A calibration, from the machine at hand to the files."""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import torch

from gnnperf.core import InputError, files, replacing_folder, untrusted
from gnnperf.hardware import DeviceSpec, LinkSpec, Measured, cluster_from, default_cluster, device_from, yaml_text
from gnnperf.record import host_state
from gnnperf.record.calibrate import rounds
from gnnperf.record.calibrate.comm import MESSAGE_BYTES, comm_points, one_pair_per_link, read_topology
from gnnperf.record.calibrate.job import Job
from gnnperf.record.calibrate.ops_file import parquet_bytes, rows
from gnnperf.record.calibrate.point import CommPoint, OpPoint
from gnnperf.record.calibrate.rounds import LinkFit, Result, results, run_rounds
from gnnperf.record.calibrate.suite import CPU, CUDA, Sizes, points
from gnnperf.record.machine import gpu_clocks, gpu_facts, versions

# The device that is calibrated: what it is called, its sizes, its clocks, and the versions that drive it.

FP8_SINCE = (8, 9)  # compute capability
DEFAULT_CACHE_BYTES = 32 * 2**20  # where neither the kernel nor CUDA states


@dataclass(frozen=True)
class Machine:
    """The device at hand."""

    torch_device: str  # "cpu" or "cuda"
    kind: str  # "cpu" or "gpu"
    label: str  # as its maker calls it
    cache_bytes: int  # last-level cache
    num_sms: int  # SMs; CPU: 1, because a rank has one core
    clock_hz: float  # highest that is known
    memory_bytes: float  # capacity
    power_limit_w: float | None  # None unknown
    count: int  # how many there are: GPUs, or cores this process may use
    fp8: bool  # whether it multiplies in float8

    @property
    def name(self) -> str:
        """For the catalog: letters, digits and underscores."""
        return "calibrated_" + re.sub(r"[^a-z0-9]+", "_", self.label.lower()).strip("_")


def machine(device: str | None) -> Machine:
    """The CUDA device if there is one, else the CPU; or the one requested."""
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen == "cuda" and not torch.cuda.is_available():
        raise InputError("this machine has no CUDA device that torch can use", where="--device cuda",
                         remedy="leave --device out, or install a CUDA build of torch")  # fmt: skip
    return _gpu() if chosen == "cuda" else _cpu()


def _cpu() -> Machine:
    facts: Mapping[str, Any] = host_state.host_facts()
    clock_mhz = facts["max_clock_mhz"] or facts["clock_mhz"]
    if clock_mhz is None or facts["memory_bytes"] is None:
        raise InputError("clock or memory of this CPU are missing", where="/proc/cpuinfo and meminfo")
    caches: Mapping[str, int] = facts["cache_bytes"]
    return Machine("cpu", "cpu", str(facts["cpu"] or "cpu"), max(caches.values(), default=DEFAULT_CACHE_BYTES), 1,
                   clock_mhz * 1e6, float(facts["memory_bytes"]), None,
                   len(os.sched_getaffinity(0)), False)  # fmt: skip


def _gpu() -> Machine:
    facts: Mapping[str, Any] = gpu_facts(torch.cuda.current_device())
    clocks = gpu_clocks(torch.cuda.current_device())
    khz = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "clock_rate", None)
    clock_mhz = clocks["max_clock_mhz"] or (khz and float(khz) / 1e3)
    if clock_mhz is None:
        raise InputError("neither nvidia-smi nor torch reports this GPU's clock", where="--device cuda",
                         remedy="put nvidia-smi on the PATH")  # fmt: skip
    return Machine("cuda", "gpu", str(facts["name"]), int(facts["l2_bytes"] or DEFAULT_CACHE_BYTES),
                   int(facts["num_sms"]), clock_mhz * 1e6, float(facts["memory_bytes"]), clocks["power_limit_w"],
                   torch.cuda.device_count(), torch.cuda.get_device_capability() >= FP8_SINCE)  # fmt: skip


def clocks(torch_device: str) -> dict[str, float | None]:
    """Of the device, now, MHz (and watts for a GPU's limit)."""
    return gpu_clocks(torch.cuda.current_device()) if torch_device == "cuda" else {"clock_mhz": host_state.clock_mhz()}


# What is measured on a machine: its suite, and the groups of ranks its links allow.

FAR = 4  # times the last-level cache: the largest operand of a stream
LOOPBACK = "lo"  # the link of ranks on CPUs


@dataclass(frozen=True)
class Ask:
    """What a calibration is requested."""

    ranks: int  # of the groups whose collectives are measured; 0 or 1: none
    ops: tuple[OpPoint, ...] | None = None  # measure these only; None: the suite
    sizes: Sizes | None = None  # of the suite; None: the device's own
    message_bytes: tuple[int, ...] = MESSAGE_BYTES  # of the collectives


def job_for(machine: Machine, ask: Ask) -> Job:
    """One round; seed, seconds and out are set per round."""
    sizes, far = ask.sizes or (CUDA if machine.kind == "gpu" else CPU), FAR * machine.cache_bytes
    if ask.sizes is None and max(sizes.stream_bytes) < far:
        sizes = replace(sizes, stream_bytes=(*sizes.stream_bytes, far))
    ops, comm = points(sizes, machine.fp8) if ask.ops is None else ask.ops, tuple[CommPoint, ...]()
    if ask.ops is None and ask.ranks > 1:
        pairs = read_topology(ask.ranks) if machine.kind == "gpu" else {}
        link = "+".join(sorted(set(pairs.values()))) or LOOPBACK
        comm = comm_points(ask.ranks, link, one_pair_per_link(pairs), ask.message_bytes)
    return Job(
        ops, comm, ask.ranks, machine.torch_device, host_costs=ask.ops is None, cache_bytes=machine.cache_bytes,
        seed=0, seconds=0.0, out="",
    )  # fmt: skip


# The files of a calibration: a folder that is whole or not there.

DEVICE_FILE, CLUSTER_FILE, OPS_FILE, ROUNDS_FILE = "device.yaml", "cluster.yaml", "ops.parquet", "calibration.json"
OWN = (DEVICE_FILE, CLUSTER_FILE, OPS_FILE, ROUNDS_FILE)


def check_out(out: Path, overwrite: bool) -> None:
    """Before anything is measured."""
    if files.refuse_foreign(out, OWN) and not overwrite:
        raise InputError("holds a calibration already", where=str(out), remedy="choose another, or add --overwrite")
    with untrusted.reading(out, "cannot be written", remedy="choose a directory you may write to, with space left"):
        out.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out.parent).close()


# Results of a calibration, as a device and a cluster in the catalog's own YAML.

MEMORY_STREAM = "copy"  # half read, half written, as most ops are
NOT_MEASURED = "not measured: "
DIGITS = 5


def device_mapping(machine: Machine, results: Iterable[Result], provenance: Mapping[str, str]) -> dict[str, object]:
    """The device file's content; it loads through gnnperf.hardware.

    Rates are sustained already, so that both shares are 1.
    """
    result = list(results)
    flops = rounds.flops_per_s(result, machine.kind)
    streams = rounds.bandwidths(result, machine.cache_bytes)
    floor = rounds.launch_floor_us(result)
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
        "measured": _measured(measured), "host": _measured(rounds.host_costs(result)), "provenance": dict(provenance),
    }  # fmt: skip
    device_from(content, "device.yaml")
    return content


def _measured(result: Mapping[str, Measured]) -> dict[str, dict[str, float]]:
    return {name: {key: _rounded(value) for key, value in asdict(one).items()} for name, one in result.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def cluster_mapping(
    machine: Machine, device: DeviceSpec, results: Iterable[Result], provenance: Mapping[str, str]
) -> dict[str, object]:
    """The cluster file's content: the fastest link is `intra`.

    Links that were not measured are those of the device's default cluster, and say so.
    """
    result = list(results)
    default, fits, host_link = default_cluster(device), rounds.links(result), rounds.host_link(result)
    best = max(fits, key=lambda name: fits[name].bandwidth_bytes_per_s, default=None)
    content: dict[str, object] = {
        "name": f"{machine.name}_cluster", "device": device.name,
        "intra": _link(best, fits[best]) if best is not None else _unmeasured(default.intra),
        "inter": _unmeasured(default.inter),
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
    """Measure, and write the folder."""
    check_out(out, overwrite)
    before, began = clocks(machine.torch_device), datetime.now(UTC)
    result = results(run_rounds(job_for(machine, ask), minutes))
    facts: dict[str, object] = {
        "began": began.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "clocks_before": before, "clocks_after": clocks(machine.torch_device), "versions": versions(),
    }  # fmt: skip
    columns = {"device": machine.label, **{f"{name}_version": versions()[name] for name in ("torch", "cuda", "driver")}}
    # All rounds' medians, so that intervals can be computed anew.
    ways = [{"point": msgspec.to_builtins(r.way.point), "cache": str(r.way.cache),
             "launch_included": r.way.launch_included, "round_medians_us": r.round_medians_us}
            for r in result]  # fmt: skip
    lines = ",\n".join(json.dumps(way) for way in ways)
    content = f'{{"facts": {json.dumps(facts)},\n"readings": [\n{lines}\n]}}\n'
    contents = {OPS_FILE: parquet_bytes(rows(result, columns)), ROUNDS_FILE: content.encode()}
    if ask.ops is None:
        flat: dict[str, object] = {}  # texts, as the YAML of specifications has it; what is unknown is left out
        for key, value in facts.items():
            flat |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
        provenance = {key: str(value) for key, value in flat.items() if value is not None}
        about_device = device_mapping(machine, result, provenance)
        contents[DEVICE_FILE] = yaml_text(about_device).encode()
        if ask.ranks > 1 or machine.kind == "gpu":
            device = device_from(about_device, DEVICE_FILE)
            contents[CLUSTER_FILE] = yaml_text(cluster_mapping(machine, device, result, provenance)).encode()
    with replacing_folder(out) as temporary:
        for name, written in contents.items():
            (temporary / name).write_bytes(written)
    return result
