"""Raw recordings -> the data set that is committed: TraceTables, splits.json and a card for people."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnperf.errors import InputError
from gnnperf.record import files
from gnnperf.record.dataset import accepted
from gnnperf.record.dataset_card import dataset_card
from gnnperf.record.plan import Plan

SPLITS, README = "splits.json", "README.md"


def build(plan: Plan, raw: Path, out: Path) -> int:
    """Convert every run of the plan; the size of the data set, in bytes.

    Raises:
        InputError: a run is missing or not accepted, a trace cannot be read, or `out` cannot be written.
    """
    missing = [workload.name for workload in plan.workloads if not accepted(raw / workload.name)]
    if missing:
        remedy = f"record the plan {plan.name} first; what is there is kept"
        raise InputError(f"{len(missing)} of {len(plan.workloads)} runs are missing, first {missing[0]!r}",
                         where=str(raw), remedy=remedy)  # fmt: skip
    for workload in plan.workloads:
        convert(raw / workload.name, out / workload.name)
    cards = {workload.name: _card(out / workload.name) for workload in plan.workloads}
    size_bytes = sum(file.stat().st_size for name in cards for file in (out / name).iterdir())
    files.write_json(out / SPLITS, {axis: _lists(parts) for axis, parts in plan.splits.items()})
    files.write_text(out / README, dataset_card(plan, cards, size_bytes))
    return size_bytes


def convert(run_dir: Path, out: Path) -> None:
    """One recorded run -> TraceTables with the run's card.

    The recorder needs torch and the standard library only; reading traces needs more. So the trace room is loaded by
    name, here and now, and is no dependency of this package.
    """
    trace: Any = importlib.import_module("gnnperf.trace")
    storage: Any = importlib.import_module("gnnperf.trace.storage")
    storage.write_run(trace.read_run(run_dir), out)


def _card(run_dir: Path) -> dict[str, Any]:
    card = files.read_json(run_dir / "run.json")
    if card is None:
        raise InputError("has no card", where=str(run_dir), allowed="a run written by gnnperf record")
    return card


def _lists(parts: Mapping[str, Any]) -> dict[str, list[str]]:
    return {part: list(names) for part, names in parts.items()}
