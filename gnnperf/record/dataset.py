"""Record every run of a plan, one after another, behind a gate; what is there already is kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gnnperf.record import card, files
from gnnperf.record.launch import RankFailed
from gnnperf.record.plan import Plan
from gnnperf.record.probe import drift, probe_us
from gnnperf.record.run import record_run
from gnnperf.record.workloads.workload import Workload

REJECTED = "rejected"


@dataclass(frozen=True)
class Outcome:
    """What became of one run: accepted, and how many attempts it took; or why not."""

    name: str
    accepted: bool
    note: str


def accepted(run_dir: Path) -> bool:
    """Whether `run_dir` holds a complete run that has passed the gate."""
    found = files.read_json(run_dir / card.CARD)
    return found is not None and found.get("status") == card.COMPLETE and "probe" in found


def record_all(plan: Plan, raw: Path, say: Callable[[str], None]) -> list[Outcome]:
    """Record what `raw` does not hold yet. A run that breaks is marked and does not stop the others."""
    outcomes = []
    for number, workload in enumerate(plan.workloads, start=1):
        outcome = _record_one(plan, workload, raw / workload.name)
        say(f"[{number}/{len(plan.workloads)}] {outcome.name}: {outcome.note}")
        outcomes.append(outcome)
    return outcomes


def _record_one(plan: Plan, workload: Workload, run_dir: Path) -> Outcome:
    if accepted(run_dir):
        return Outcome(workload.name, True, "already there")
    drifts: list[float] = []
    for _ in range(plan.max_attempts):
        if run_dir.exists():
            shutil.rmtree(run_dir)
        try:
            drifts.append(_attempt(plan, workload, run_dir, drifts))
        except RankFailed as failure:
            return Outcome(workload.name, False, f"broken: {failure}")
        if drifts[-1] <= plan.max_drift:
            return Outcome(workload.name, True, f"{_step_ms(run_dir)}, accepted at attempt {len(drifts)}")
    return Outcome(workload.name, False, f"rejected: the probe drifted by {', '.join(f'{d:.1%}' for d in drifts)}")


def _attempt(plan: Plan, workload: Workload, run_dir: Path, earlier: list[float]) -> float:
    """Probe, record, probe, and write what was found into the card; the drift."""
    cores = sorted(os.sched_getaffinity(0))[: plan.world_size]
    before_us = probe_us(cores)
    record_run(run_dir, workload, plan.steps, world_size=plan.world_size)
    after_us = probe_us(cores)
    found = drift(before_us, after_us)
    written = files.read_json(run_dir / card.CARD)
    assert written is not None, "record_run returned without a card"
    passed = found <= plan.max_drift
    files.write_json(run_dir / card.CARD, written | {
        "status": card.COMPLETE if passed else REJECTED,
        "probe": {"before_us": before_us, "after_us": after_us, "drift": found, "max_drift": plan.max_drift,
                  "rejected_drifts": list(earlier)},
    })  # fmt: skip
    return found


def _step_ms(run_dir: Path) -> str:
    times = (files.read_json(run_dir / card.CARD) or {})["step_time"]
    plain, traced = (times[k]["median_us"] / 1e3 for k in ("without_profiler", "with_profiler"))  # type: ignore[index]
    return f"{plain:.1f} ms, {traced:.1f} ms with the profiler"
