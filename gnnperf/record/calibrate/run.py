"""A calibration, from the machine at hand to the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gnnperf.hardware import device_from, yaml_text
from gnnperf.record.calibrate.compare import OPS_FILE
from gnnperf.record.calibrate.machine import Machine, clocks, software
from gnnperf.record.calibrate.op_table import parquet_bytes, rows
from gnnperf.record.calibrate.output import CLUSTER_FILE, DEVICE_FILE, ROUNDS_FILE, check_out, write
from gnnperf.record.calibrate.plan import Ask, job_for, link_across
from gnnperf.record.calibrate.point import to_json
from gnnperf.record.calibrate.rounds import Result, results, run_rounds
from gnnperf.record.calibrate.specs import cluster_mapping, device_mapping
from gnnperf.record.calibrate.topology import peer_access, read_topology


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
    found = results(run_rounds(job_for(machine, ask), minutes))
    facts: dict[str, object] = {
        "began": began.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "clocks_before": before, "clocks_after": clocks(machine.torch_device), "versions": software(),
        **_topology(machine),
    }  # fmt: skip
    files = {OPS_FILE: parquet_bytes(rows(found, _columns(machine))), ROUNDS_FILE: _rounds_bytes(found, facts)}
    if ask.ops is None:
        files |= _spec_files(machine, ask, found, _provenance(facts))
    write(out, files)
    return found


def _spec_files(machine: Machine, ask: Ask, found: Sequence[Result], provenance: Mapping[str, str]) -> dict[str, bytes]:
    content = device_mapping(machine, found, provenance)
    files = {DEVICE_FILE: yaml_text(content).encode()}
    if ask.ranks > 1 or machine.kind == "gpu":
        device = device_from(content, DEVICE_FILE)
        files[CLUSTER_FILE] = yaml_text(cluster_mapping(machine, device, found, link_across(ask), provenance)).encode()
    return files


def _columns(machine: Machine) -> dict[str, object]:
    found = software()
    return {"device": machine.label, "torch_version": found["torch"], "cuda_version": found["cuda"],
            "driver_version": found["driver"]}  # fmt: skip


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


def _rounds_bytes(found: Sequence[Result], facts: Mapping[str, object]) -> bytes:
    """All rounds' medians, so that intervals can be computed anew."""
    ways = [{"point": json.loads(to_json(r.way.point)), "cache": str(r.way.cache),
             "launch_included": r.way.launch_included, "round_medians_us": r.round_medians_us}
            for r in found]  # fmt: skip
    lines = ",\n".join(json.dumps(way) for way in ways)
    return f'{{"facts": {json.dumps(facts)},\n"readings": [\n{lines}\n]}}\n'.encode()
