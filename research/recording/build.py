"""Raw recordings -> the data set that is committed: TraceTables, splits, pairs and a card for people.

What is built stays: its raw traces may be gone when more are recorded, on another day.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnperf.core import InputError, each, files
from gnnperf.record import card
from gnnperf.trace import read_run
from gnnperf.trace.storage import write_run
from research.recording.dataset import accepted, copy_calibration, recorded_in
from research.recording.dataset_card import NUM_EXAMPLES, dataset_card
from research.recording.plan import Plan, Split, recording_name

SPLITS, PAIRS, README, EXAMPLES = "splits.json", "interventions.json", "README.md", "examples"
DAY_AXIS = "recording_day"


@dataclass(frozen=True)
class Built:
    """What was built: recordings, runs with all their repeats, bytes."""

    recordings: int
    runs: int
    size_bytes: int


def build(plan: Plan, raw: Path, out: Path) -> Built:
    """Convert every recording of the plan that was accepted; runs without one are left out of splits and pairs.

    Recordings that only `out` holds are kept, and so are its examples.
    """
    result = {spec.name: _accepted(plan, spec.name, (raw, out)) for spec in plan.runs}
    result = {name: repeats for name, repeats in result.items() if repeats}
    if not result:
        raise InputError("holds no accepted recording", where=str(raw), remedy=f"record the plan {plan.name} first")
    plan = _of(plan, result)
    names = [recording_name(name, repeat) for name, repeats in result.items() for repeat in repeats]
    for name in each(names, "converting traces", "recordings"):
        if accepted(raw / name):
            convert(raw / name, out / name)
    _copy_examples(plan, raw, out)
    copy_calibration(raw, out)
    cards = {name: _card(out / name) for name in names}
    size_bytes = sum(file.stat().st_size for name in names for file in (out / name).iterdir())
    splits = {axis: _with_repeats(parts, result) for axis, parts in _axes(plan, cards).items()}
    files.write_json(out / SPLITS, splits)
    files.write_json(out / PAIRS, {"pairs": _pairs(plan)})
    files.write_text(out / README, dataset_card(plan, cards, splits, size_bytes))
    return Built(len(names), sum(len(r) == plan.repeats for r in result.values()), size_bytes)


def convert(run_dir: Path, out: Path) -> None:
    """One recorded run -> TraceTables with the run's card."""
    write_run(read_run(run_dir), out, smallest=True)


def _of(plan: Plan, result: Mapping[str, object]) -> Plan:
    """The plan without the runs that were not found."""
    splits = {
        axis: {part: [name for name in names if name in result] for part, names in parts.items()}
        for axis, parts in plan.splits.items()
    }
    runs = tuple(spec for spec in plan.runs if spec.name in result)
    pairs = tuple(pair for pair in plan.pairs if pair.a.name in result and pair.b.name in result)
    return replace(plan, runs=runs, splits=splits, pairs=pairs)


def _accepted(plan: Plan, run: str, folders: Sequence[Path]) -> list[int]:
    return [repeat for repeat in range(1, plan.repeats + 1) if recorded_in(recording_name(run, repeat), folders)]


def _with_repeats(parts: Split, result: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    return {
        part: [recording_name(name, repeat) for name in names for repeat in result[name]]
        for part, names in parts.items()
    }


def _axes(plan: Plan, cards: Mapping[str, Any]) -> dict[str, Split]:
    """The plan's axes, and the recording day where there are several: the last day's new runs are held out.

    The days divide what the axis `run` divides; a plan that holds everything out has none.
    """
    day_of: dict[str, str] = {}
    for name, about in cards.items():
        run, day = name.rpartition("/")[0], str(about["recorded_at"])[:10]
        day_of[run] = min(day, day_of.get(run, day))
    by_run = plan.splits.get("run")
    if len(set(day_of.values())) < 2 or by_run is None:
        return dict(plan.splits)
    last = max(day_of.values())
    held_out = [name for names in by_run.values() for name in names if day_of[name] == last]
    left = {part: [name for name in names if day_of[name] != last] for part, names in by_run.items()}
    by_day = {"train": [*left["train"], *left["test"]], "val": left["val"], "test": held_out}
    return {**plan.splits, DAY_AXIS: by_day}


def _pairs(plan: Plan) -> list[dict[str, object]]:
    return [{"kind": str(p.change), "a": p.a.name, "b": p.b.name, "edit": dict(p.edit)} for p in plan.pairs]


def _copy_examples(plan: Plan, raw: Path, out: Path) -> None:
    """Raw traces of a few runs of different programs stay, as the profiler wrote them."""
    example_of: dict[str, Path] = {}
    for spec in plan.runs:
        retained, recorded = out / EXAMPLES / spec.name, raw / recording_name(spec.name, 1)
        if accepted(retained) or accepted(recorded):
            example_of.setdefault(spec.workload.kind, retained if accepted(retained) else recorded)
    for example in list(example_of.values())[:NUM_EXAMPLES]:
        if example.parent != out / EXAMPLES:
            shutil.copytree(example, out / EXAMPLES / example.parent.name, dirs_exist_ok=True)


def _card(run_dir: Path) -> dict[str, Any]:
    result = files.read_json(run_dir / card.CARD)
    if result is None:
        raise InputError("has no card", where=str(run_dir), allowed="a run written by gnnperf record")
    return result
