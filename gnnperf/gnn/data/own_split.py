"""The split of a folder that has no splits.json, drawn by the names of runs: with more runs, few change their part.

A run is one name: its repeats stay together. Where cards name several programs, whole programs are left out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from gnnperf.core import InputError
from gnnperf.gnn.data.recordings import CARD, COMPLETE, read_json
from gnnperf.gnn.data.runs import run_of, workload_of

BY_RUN, BY_WORKLOAD = "run", "workload"
HELD_OUT = 5  # one of so many units validates, and one more tests where there are that many
TOO_FEW = "too little data: {} {}; training needs one, and validation another one"


def drawn_axis(dataset: Path) -> str:
    """The axis that fits the recordings of a folder: programs where cards name several, else runs."""
    programs = {workload_of(dataset / name) for name in recordings_below(dataset)} - {""}
    return BY_WORKLOAD if len(programs) > 1 else BY_RUN


def drawn_parts(dataset: Path, axis: str) -> dict[str, list[str]]:
    """Part -> recordings of the folder.

    Args:
        dataset: folder with one folder per run, or per run and repeat.
        axis: BY_RUN, or BY_WORKLOAD: runs of one program are in one part.

    Raises:
        InputError: another axis, or fewer than two runs or programs.
    """
    if axis not in (BY_RUN, BY_WORKLOAD):
        raise InputError("no such file", where=str(dataset / "splits.json"),
                         remedy=f"write it, or set data.axis={BY_RUN}: then a split is drawn")  # fmt: skip
    units: dict[str, list[str]] = {}
    for name in recordings_below(dataset):
        units.setdefault(_run_of(name) if axis == BY_RUN else workload_of(dataset / name), []).append(name)
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


def _run_of(recording: str) -> str:
    """A number alone is a repeat: then the data set itself is the folder of one run."""
    return "" if recording.isdecimal() else run_of(recording)


def _is_recording(folder: Path) -> bool:
    if not folder.is_dir() or not any(path.is_file() and path.name != CARD for path in folder.iterdir()):
        return False
    card = folder / CARD
    return not card.is_file() or read_json(card).get("status") == COMPLETE
