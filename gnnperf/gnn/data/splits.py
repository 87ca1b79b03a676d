"""Splits belong to the data set: datasets/<name>/splits.json, {"axis": {"train": [runs], "val": [], "test": []}}."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gnnperf.core import InputError, untrusted
from gnnperf.gnn.data.runs import run_of

PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Split:
    """Run names by part; a run is in one part only.

    Attributes:
        axis: what differs between the parts (run, workload, size, ...).
    """

    axis: str
    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]

    def part(self, name: str) -> tuple[str, ...]:
        """The runs of `train`, `val` or `test`."""
        return {"train": self.train, "val": self.val, "test": self.test}[name]


def read_split(dataset: Path, axis: str) -> Split:
    """One axis of a data set's splits.json.

    Raises:
        InputError: no such file or axis, a malformed part, a run in two parts (recordings of it, too), a run that is
            not there, an empty training or validation part.
    """
    path = dataset / "splits.json"
    with untrusted.reading(path, "not JSON"):
        axes = _read_axes(path)
        if axis not in axes:
            raise InputError(f"no split axis {axis!r}", where=str(path), allowed=", ".join(sorted(axes)))
        split = Split(axis, *(_part(axes[axis], name, f"{path}, {axis}") for name in PARTS))
        _check(split, dataset, f"{path}, {axis}")
        return split


def _read_axes(path: Path) -> dict[str, object]:
    if not path.is_file():
        remedy = "set data.path to a folder with one folder per run and a splits.json"
        raise InputError("no such file", where=str(path), remedy=remedy)
    axes = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(axes, dict):
        raise InputError("not an object", where=str(path), allowed='{"axis": {"train": [...], "val": [], "test": []}}')
    return axes


def _part(parts: object, name: str, where: str) -> tuple[str, ...]:
    runs = parts.get(name, []) if isinstance(parts, dict) else None
    if not isinstance(runs, list) or not all(isinstance(r, str) for r in runs):
        raise InputError(f"part {name!r} is not a list of run names", where=where)
    return tuple(runs)


def _check(split: Split, dataset: Path, where: str) -> None:
    for name in ("train", "val"):
        if not split.part(name):
            raise InputError(f"part {name!r} has no runs", where=where)
    seen: dict[str, str] = {}
    for name in PARTS:
        for run in split.part(name):
            if run in seen:
                raise InputError(f"run {run!r} is in {seen[run]} and {name}", where=where, remedy="keep it in one part")
            parts = PurePosixPath(run).parts
            if not parts or ".." in parts or run.startswith("/"):
                raise InputError(
                    f"run {run[:80]!r} is not inside {dataset}", where=where, allowed="<run> or <run>/<repeat>"
                )
            if not (dataset / run).is_dir():
                raise InputError(f"run {run!r} is not a folder of {dataset}", where=where)
            seen[run] = name
    _check_recordings(seen, where)


def _check_recordings(parts: Mapping[str, str], where: str) -> None:
    """Recordings of one run tell each other: they stand on one side."""
    result: dict[str, tuple[str, str]] = {}  # run -> its first recording, its part
    for recording, part in parts.items():
        first, known = result.setdefault(run_of(recording), (recording, part))
        if part != known:
            given = f"{first!r} ({known}) and {recording!r} ({part}) are two recordings of one run"
            remedy = "keep them in one part, or name runs apart: <run>/<number of the recording>"
            raise InputError(given, where=where, remedy=remedy)
