"""Splits belong to the data set: datasets/<name>/splits.json, {"axis": {"train": [runs], "val": [], "test": []}}.

A folder without the file gets a drawn split (`drawn_parts`). Recordings of other data sets may replace the part test,
or join the part train.
"""

import json
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from gnnperf.core import InputError, untrusted
from gnnperf.gnn.data.recordings import CARD, COMPLETE, read_json, read_recordings
from gnnperf.gnn.data.runs import run_of, workload_of

PARTS = ("train", "val", "test")
SPLITS = "splits.json"
BY_RUN, BY_WORKLOAD = "run", "workload"
BY_PROGRAM = (BY_RUN, BY_WORKLOAD)  # first words of axes along which the program of a recording determines its part


@dataclass(frozen=True)
class Split:
    """Run names by part; a run is in one part only."""

    axis: str  # what differs between the parts (run, workload, size, ...)
    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]

    def part(self, name: str) -> tuple[str, ...]:
        """The runs of `train`, `val` or `test`."""
        return {"train": self.train, "val": self.val, "test": self.test}[name]


def read_split(dataset: Path, axis: str) -> Split:
    """One axis of a data set's splits.json; without the file, one that is drawn.

    Raises:
        InputError: no such folder or axis, a split that cannot be, or too few runs to draw one.
    """
    if not dataset.is_dir():
        raise InputError("no such folder", where=str(dataset), remedy="set data.path to a folder of recordings")
    path = dataset / SPLITS
    with untrusted.reading(path, "not JSON"):
        is_stated = path.is_file()
        axes = json.loads(path.read_text(encoding="utf-8")) if is_stated else {axis: drawn_parts(dataset, axis)}
        if not isinstance(axes, dict):
            raise InputError("not an object", where=str(path),
                             allowed='{"axis": {"train": [...], "val": [], "test": []}}')  # fmt: skip
        if axis not in axes:
            raise InputError(f"no split axis {axis!r}", where=str(path), allowed=", ".join(sorted(axes)))
        split = Split(axis, *(_part(axes[axis], name, f"{path}, {axis}") for name in PARTS))
        _check(split, dataset, f"{path}, {axis}")
        return split


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
    """Recordings of one run are nearly equal: they belong to one part."""
    result: dict[str, tuple[str, str]] = {}  # run -> its first recording, its part
    for recording, part in parts.items():
        first, known = result.setdefault(run_of(recording), (recording, part))
        if part != known:
            given = f"{first!r} ({known}) and {recording!r} ({part}) are two recordings of one run"
            remedy = "keep them in one part, or name runs apart: <run>/<number of the recording>"
            raise InputError(given, where=where, remedy=remedy)


def with_tests_of(split: Split, other: Path) -> Split:
    """The split, tested on the recordings of `other` in place of its own; its axis is named after both.

    Runs that the split trains or validates on are left out by name: the same program stands on one side only, whatever
    machine it ran on.

    All complete recordings of other runs are taken; what the other data set's own splits leave out, too.
    """
    known = {run_of(name) for name in (*split.train, *split.val)}
    result = _names(other, "data.test_path")
    test = tuple(name for name in result if run_of(name) not in known)
    if not test:
        what = f"none of its {len(result)} recordings is of a run that `{split.axis}` neither trains nor validates on"
        raise InputError(what, where=str(other), remedy="name another data.axis or data.test_path")
    return replace(split, axis=f"{split.axis}-{other.resolve().name}", test=test)


def with_more_to_train(split: Split, other: Path, tested: Iterable[Path]) -> Split:
    """The split with all complete recordings of `other` in its part train, named <folder>/<recording>.

    Left out are programs that are `tested` on (folders of recordings), so that an unknown program stays one, and runs
    that the split validates on. What else an axis holds out (sizes, links, ..) another data set may hold undetected.
    """
    if split.axis.split("-")[0].split("+")[0] not in BY_PROGRAM:
        what = f"another data set may hold what `{split.axis}` holds out"
        raise InputError(what, where="data.train_paths", allowed=f"with data.axis {', '.join(BY_PROGRAM)} or <one>-..")
    known, held_out = {run_of(name) for name in split.val}, {_program(folder) for folder in tested}
    new = [name for name in _names(other, "data.train_paths") if run_of(name) not in known]
    result = [f"{prefix_of(other)}{name}" for name in new if _program(other / name) not in held_out]
    if not result:
        what = "holds only runs that are validated on and programs that are tested on"
        raise InputError(what, where=str(other), remedy="name another data set")
    if any(name.startswith(prefix_of(other)) for name in split.train):
        raise InputError("a folder of that name is trained on already", where=str(other), remedy="name each once")
    return replace(split, axis=f"{split.axis}+{other.resolve().name}", train=(*split.train, *result))


def prefix_of(other: Path) -> str:
    """What the names of another data set's recordings begin with."""
    return f"{other.resolve().name}/"


def _names(folder: Path, key: str) -> list[str]:
    """Of its complete recordings, in order."""
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), remedy=f"set {key} to a folder of recordings")
    return sorted(one.name for repeats in read_recordings(folder).values() for one in repeats.values())


def _program(recording: Path) -> str:
    name = workload_of(recording)
    if not name:
        raise InputError("no card names its program", where=str(recording), remedy="leave data.train_paths empty")
    return name


# The split of a folder without splits.json, drawn by the names of runs: with more runs, few change their part. A run is
# one name: its repeats stay together. Where cards name several programs, whole programs are left out.

HELD_OUT = 5  # one of so many units validates, and one more tests where there are that many
TOO_FEW = "too little data: {} {}; training needs one, and validation another one"


def drawn_axis(dataset: Path) -> str:
    """The axis that fits the recordings of a folder: programs where cards name several, else runs."""
    programs = {workload_of(dataset / name) for name in recordings_below(dataset)} - {""}
    return BY_WORKLOAD if len(programs) > 1 else BY_RUN


def drawn_parts(dataset: Path, axis: str, left_out: Container[str] = ()) -> dict[str, list[str]]:
    """Part -> recordings of the folder that are not `left_out`; along BY_WORKLOAD, runs of a program are in one part.

    Raises:
        InputError: another axis, or fewer than two runs or programs.
    """
    if axis not in BY_PROGRAM:
        raise InputError("no such file", where=str(dataset / SPLITS),
                         remedy=f"write it, or set data.axis={BY_RUN}: then a split is drawn")  # fmt: skip
    units: dict[str, list[str]] = {}
    for name in (name for name in recordings_below(dataset) if name not in left_out):
        # A number by itself is a repeat: then the data set itself is the folder of one run.
        run = "" if name.isdecimal() else run_of(name)
        units.setdefault(run if axis == BY_RUN else workload_of(dataset / name), []).append(name)
    if len(units) < 2:
        unit = "run" if axis == BY_RUN else "program"
        raise InputError(TOO_FEW.format(len(units), unit if len(units) == 1 else f"{unit}s"), where=str(dataset),
                         allowed="<run>/<repeat>/ or <run>/, one folder per recording",
                         remedy="record more runs (numbered folders are repeats of one run)")  # fmt: skip
    order = sorted(units, key=lambda unit: (zlib.crc32(unit.encode()), unit))
    num_held_out = max(1, len(units) // HELD_OUT)
    num_test = num_held_out if len(units) >= HELD_OUT else 0
    parts = {"val": order[:num_held_out], "test": order[num_held_out : num_held_out + num_test],
             "train": order[num_held_out + num_test :]}  # fmt: skip
    return {part: [name for unit in sorted(names) for name in units[unit]] for part, names in parts.items()}


def recordings_below(dataset: Path) -> Iterator[str]:
    """<run>/<repeat> or <run> of every folder with traces; recordings that their card calls broken are left out."""
    for run in sorted(path for path in dataset.glob("[!.]*") if path.is_dir()):
        repeats = sorted((path for path in run.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
        yield from (path.relative_to(dataset).as_posix() for path in repeats or [run] if _is_recording(path))


def _is_recording(folder: Path) -> bool:
    if not folder.is_dir() or not any(path.is_file() and path.name != CARD for path in folder.iterdir()):
        return False
    card = folder / CARD
    return not card.is_file() or read_json(card).get("status") == COMPLETE
