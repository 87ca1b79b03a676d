"""Record every run of a plan, one after another, behind a gate; what is there already is kept."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from gnnperf.errors import InputError
from gnnperf.record import card, files
from gnnperf.record.launch import RankFailed
from gnnperf.record.plan import Plan, recording_name
from gnnperf.record.probe import device_probe_us, drift, probe_us
from gnnperf.record.run import record_run
from gnnperf.record.spec import RunSpec

REJECTED = "rejected"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one recording: accepted, and how many attempts it took; or why not."""

    name: str
    accepted: bool
    note: str


def accepted(run_dir: Path) -> bool:
    """Whether `run_dir` holds a complete recording that has passed the gate."""
    found = files.read_json(run_dir / card.CARD)
    return found is not None and found.get("status") == card.COMPLETE and "probe" in found


def record_all(plan: Plan, raw: Path, say: Say, *, resume: bool = False, budget_s: float = math.inf) -> list[Outcome]:
    """Record what `raw` does not hold yet. A recording that breaks is marked and does not stop the others.

    Args:
        plan: what to record.
        raw: where recordings go: <run>/<repeat>/.
        say: gets a line per recording.
        resume: go on with what `raw` holds.
        budget_s: no recording begins after that.

    Raises:
        InputError: `raw` holds recordings and `resume` was not said.
    """
    recordings = plan.recordings()
    there = sum(accepted(raw / recording_name(spec.name, repeat)) for spec, repeat in recordings)
    if there and not resume:
        raise InputError(f"holds {there} of {len(recordings)} recordings", where=str(raw),
                         remedy="go on with --resume, or give another folder")  # fmt: skip
    outcomes, deadline = [], time.monotonic() + budget_s
    for number, (spec, repeat) in enumerate(recordings, start=1):
        if time.monotonic() > deadline:
            say(f"stopped after {budget_s / 60:g} min; --resume goes on")
            break
        _await_gap(plan, spec, repeat, raw, say)
        outcome = _record_one(plan, spec, repeat, raw / recording_name(spec.name, repeat))
        say(f"[{number}/{len(recordings)}] {outcome.name}: {outcome.note}")
        outcomes.append(outcome)
    return outcomes


def _await_gap(plan: Plan, spec: RunSpec, repeat: int, raw: Path, say: Say) -> None:
    """Wait until the earlier repeat of this run is old enough."""
    earlier = raw / recording_name(spec.name, repeat - 1) / card.CARD
    if repeat == 1 or not earlier.exists() or accepted(raw / recording_name(spec.name, repeat)):
        return
    left_s = earlier.stat().st_mtime + plan.min_gap_s - time.time()
    if left_s > 0:
        say(f"waiting {left_s / 60:.0f} min: repeats of a run are {plan.min_gap_s / 60:.0f} min apart")
        time.sleep(left_s)


def _record_one(plan: Plan, spec: RunSpec, repeat: int, run_dir: Path) -> Outcome:
    name = recording_name(spec.name, repeat)
    if accepted(run_dir):
        return Outcome(name, True, "already there")
    drifts: list[float] = []
    why = ""
    for attempt in range(1, plan.max_attempts + 1):
        if run_dir.exists():
            shutil.rmtree(run_dir)
        try:
            drifts.append(_attempt(plan, spec, repeat, run_dir, drifts))
        except RankFailed as failure:
            why = f"broken: {failure}"
            continue
        if drifts[-1] <= plan.max_drift:
            return Outcome(name, True, f"{_step_ms(run_dir)}, accepted at attempt {attempt}")
        why = f"rejected: the probe drifted by {', '.join(f'{d:.1%}' for d in drifts)}"
    return Outcome(name, False, why)


def _attempt(plan: Plan, spec: RunSpec, repeat: int, run_dir: Path, earlier: list[float]) -> float:
    """Probe, record, probe, and write what was found into the card; the drift."""
    before_us = _probe_us(spec.world_size)
    record_run(run_dir, spec, plan.steps, repeat=repeat)
    after_us = _probe_us(spec.world_size)
    found = drift(before_us, after_us)
    written = files.read_json(run_dir / card.CARD)
    assert written is not None, "record_run returned without a card"
    passed = found <= plan.max_drift
    files.write_json(run_dir / card.CARD, written | {
        "status": card.COMPLETE if passed else REJECTED,
        "probe": {"before_us": before_us, "after_us": after_us, "drift": round(found, 5), "max_drift": plan.max_drift,
                  "rejected_drifts": [round(d, 5) for d in earlier]},
    })  # fmt: skip
    return found


def _probe_us(world_size: int) -> list[float]:
    """Of every core that ranks are put on; of the GPU where there is one."""
    if torch.cuda.is_available():
        return device_probe_us()
    return probe_us(sorted(os.sched_getaffinity(0))[:world_size])


def _step_ms(run_dir: Path) -> str:
    times = (files.read_json(run_dir / card.CARD) or {})["step_time"]
    plain, traced = (times[k]["median_us"] / 1e3 for k in ("without_profiler", "with_profiler"))  # type: ignore[index]
    return f"{plain:.1f} ms, {traced:.1f} ms with the profiler"
