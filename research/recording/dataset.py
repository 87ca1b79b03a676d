"""Record every run of a plan, one after another, behind a noise probe; what is there already is kept."""

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import torch

from gnnperf.core import InputError, each, files
from gnnperf.record import card, host_state
from gnnperf.record.calibrate.run import ROUNDS_FILE
from gnnperf.record.launcher import RankFailed
from research.recording.plan import Plan, recording_name
from research.recording.probe import NoiseProbe, device_probe_us, drift, fastest, probe_us
from research.recording.run import RunSpec, record_run

REJECTED, CALIBRATION = "rejected", "calibration"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one recording: accepted, and how many attempts it took; or why not."""

    name: str
    accepted: bool
    note: str


def accepted(run_dir: Path) -> bool:
    """Whether `run_dir` holds a complete recording that has passed the noise probe."""
    result = files.read_json(run_dir / card.CARD)
    return result is not None and result.get("status") == card.COMPLETE and "probe" in result


def recorded_in(name: str, folders: Sequence[Path]) -> Path | None:
    """The first of the folders that holds an accepted recording of that name."""
    return next((folder / name for folder in folders if accepted(folder / name)), None)


def calibrate_first(raw: Path, minutes: float, say: Say) -> None:
    """Measure the device at hand into `raw`/calibration, unless that was done before or `minutes` is 0."""
    folder = raw / CALIBRATION
    if minutes == 0 or folder.exists():  # it is written in one piece
        return
    say(f"calibrating for {minutes:g} min")
    raw.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "gnnperf", "calibrate", "--out", str(folder), "--minutes", f"{minutes:g}"]
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise InputError(f"calibration ended with exit code {done.returncode}", where=" ".join(command),
                         remedy="its message is above; --resume tries again")  # fmt: skip


def copy_calibration(raw: Path, out: Path) -> None:
    if (raw / CALIBRATION).is_dir():
        without_rounds = shutil.ignore_patterns(ROUNDS_FILE)  # the table of ops has their medians and intervals
        shutil.copytree(raw / CALIBRATION, out / CALIBRATION, dirs_exist_ok=True, ignore=without_rounds)


def record_all(
    plan: Plan, raw: Path, say: Say, *, built: Path | None = None, resume: bool = False, budget_s: float = math.inf
) -> list[Outcome]:
    """Record what is not there yet. A recording that breaks is marked and does not stop the others."""
    recordings, folders = plan.recordings(), (raw, built) if built else (raw,)
    held = [recorded_in(recording_name(spec.name, repeat), folders) for spec, repeat in recordings]
    there = [run_dir for run_dir in held if run_dir]
    if there and not resume:
        raise InputError(f"holds {len(there)} of {len(recordings)} recordings", where=str(there[0].parent.parent),
                         remedy="go on with --resume, or give another folder")  # fmt: skip
    outcomes, noise, deadline = [], NoiseProbe(plan.max_drift, _best_probe_us(there)), time.monotonic() + budget_s
    for number, (spec, repeat) in enumerate(each(recordings, "recording", "recordings"), start=1):
        if time.monotonic() > deadline:
            say("stopped: the time is up; --resume goes on")
            break
        name = recording_name(spec.name, repeat)
        if recorded_in(name, folders):
            outcome = Outcome(name, True, "already there")
        else:
            if not _await_gap(plan, spec, repeat, folders, say, deadline):
                break
            outcome = _record_one(plan, spec, repeat, raw / name, noise)
        say(f"[{number}/{len(recordings)}] {outcome.name}: {outcome.note}")
        outcomes.append(outcome)
    return outcomes


def _await_gap(
    plan: Plan, spec: RunSpec, repeat: int, folders: Sequence[Path], say: Say, deadline: float
) -> bool:  # fmt: skip
    """Wait until the other repeats of this run are old enough; False if that is after the deadline."""
    others = [recorded_in(recording_name(spec.name, r), folders) for r in range(1, plan.repeats + 1) if r != repeat]
    cards = [files.read_json(run_dir / card.CARD) or {} for run_dir in others if run_dir]
    begun = [datetime.fromisoformat(str(own["recorded_at"])) for own in cards]
    last_s = max((one.timestamp() for one in begun), default=-math.inf)
    left_s = last_s + plan.min_gap_s - time.time()
    if time.monotonic() + max(left_s, 0.0) > deadline:
        say(f"stopped: repeats of a run are {plan.min_gap_s / 60:.0f} min apart; --resume goes on")
        return False
    if left_s > 0:
        say(f"waiting {left_s / 60:.0f} min: repeats of a run are {plan.min_gap_s / 60:.0f} min apart")
        time.sleep(left_s)
    return True


def _record_one(plan: Plan, spec: RunSpec, repeat: int, run_dir: Path, noise: NoiseProbe) -> Outcome:
    name = recording_name(spec.name, repeat)
    drifts: list[float] = []
    why = ""
    for attempt in range(1, plan.max_attempts + 1):
        if run_dir.exists():
            shutil.rmtree(run_dir)
        try:
            before_us = noise.wait(partial(_probe_us, spec.world_size))
            drifts.append(_attempt(plan, spec, repeat, run_dir, before_us, drifts))
        except RankFailed as failure:
            why = f"broken: {failure}"
            continue
        if drifts[-1] <= plan.max_drift:
            return Outcome(name, True, f"{_step_ms(run_dir)}, accepted at attempt {attempt}")
        why = f"rejected: the probe drifted by {', '.join(f'{d:.1%}' for d in drifts)}"
    return Outcome(name, False, why)


def _attempt(
    plan: Plan, spec: RunSpec, repeat: int, run_dir: Path, before_us: list[float], earlier: list[float]
) -> float:
    """Record, probe again, and write what was found into the card; the drift."""
    record_run(run_dir, spec, plan.steps, repeat=repeat)
    after_us = _probe_us(spec.world_size)
    result = drift(before_us, after_us)
    written = files.read_json(run_dir / card.CARD)
    assert written is not None, "record_run returned without a card"
    passed = result <= plan.max_drift
    files.write_json(run_dir / card.CARD, written | {
        "status": card.COMPLETE if passed else REJECTED,
        "probe": {"before_us": before_us, "after_us": after_us, "drift": round(result, 5), "max_drift": plan.max_drift,
                  "rejected_drifts": [round(d, 5) for d in earlier]},
    })  # fmt: skip
    return result


def _best_probe_us(run_dirs: Sequence[Path]) -> list[float]:
    """[num_cores] the fastest of the probes in these recordings' cards, if they are of this machine."""
    here = card.machine_of([host_state.host_facts()])
    cards = [files.read_json(run_dir / card.CARD) or {} for run_dir in run_dirs]
    return fastest(result["probe"]["before_us"] for result in cards if result.get("machine") == here)  # type: ignore[index]


def _probe_us(world_size: int) -> list[float]:
    """Of every core that ranks are put on; of the GPU where there is one."""
    if torch.cuda.is_available():
        return device_probe_us()
    return probe_us(sorted(os.sched_getaffinity(0))[:world_size])


def _step_ms(run_dir: Path) -> str:
    times = (files.read_json(run_dir / card.CARD) or {})["step_time"]
    plain, traced = (times[k]["median_us"] / 1e3 for k in ("without_profiler", "with_profiler"))  # type: ignore[index]
    return f"{plain:.1f} ms, {traced:.1f} ms with the profiler"
