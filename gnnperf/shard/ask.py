"""From what `gnnperf shard` was instructed to a problem, and from the best placement to a plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnperf.core import InputError, require, write_text
from gnnperf.generate import MOST_RANKS, Placement, is_recommendation, placement_as_written, recommendation_from
from gnnperf.hardware import SUFFIXES, default_cluster, load_cluster, load_device, spread, yaml_text
from gnnperf.shard.problem import Problem

PLACEMENT, RANKS, SOURCE = "placement", "ranks", "source"


def problem_from(
    raw: Mapping[str, Any], where: str, devices: int, hardware: str, cluster: str | None, reserve_share: float
) -> Problem:  # fmt: skip
    """The problem of a file's mapping."""
    require(1 <= devices <= MOST_RANKS, "--devices", devices, f"a whole number from 1 to {MOST_RANKS}")
    if not is_recommendation(raw):
        raise InputError("has no model.tables", where=where, allowed="a recommendation model, as plan dlrm_criteo",
                         remedy="see gnnperf shard --help for the form")  # fmt: skip
    device = load_device(hardware)
    links = default_cluster(device) if cluster is None else load_cluster(cluster, device)
    requested = {key: value for key, value in raw.items() if key != PLACEMENT} | {RANKS: devices}
    return Problem(recommendation_from(requested, where), spread(links, devices), reserve_share)


def given_placement(raw: Mapping[str, Any], where: str, devices: int) -> Placement | None:
    """The file's own placement, if it has one for as many ranks."""
    if PLACEMENT not in raw or raw.get(RANKS) != devices:
        return None
    return recommendation_from(raw, where).placement


def check_out(out: Path | None) -> None:
    """Refuse a file that cannot be written, before work is done for it."""
    if out is None:
        return
    if out.suffix not in SUFFIXES:
        raise InputError(f"has the suffix {out.suffix!r}", where=f"--out {out}", allowed=", ".join(SUFFIXES))
    if not out.parent.is_dir():
        raise InputError("no such folder", where=f"--out {out.parent}", remedy="make it, or name another file")


def write_plan(raw: Mapping[str, Any], placement: Placement, problem: Problem, out: Path) -> None:
    """The file's plan with the best placement, whole or not at all."""
    retained = {key: value for key, value in raw.items() if key not in (PLACEMENT, RANKS, SOURCE)}
    written = placement_as_written(problem.tables, placement, problem.ranks)
    source = {SOURCE: raw[SOURCE]} if SOURCE in raw else {}
    plan = {**retained, RANKS: problem.ranks, PLACEMENT: written, **source}
    write_text(out, yaml_text(plan))
