"""A test part of another data set: runs of another day or another machine than those that are trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gnnperf.data.runs import RunGraph, run_of
from gnnperf.data.splits import Split
from gnnperf.errors import InputError
from gnnperf.evaluate.recordings import read_recordings


def with_tests_of(split: Split, other: Path) -> Split:
    """The split, tested on the recordings of `other` in place of its own; its axis is named after both.

    Runs that the split trains or validates on are left out by name: the same program stands on one side only, whatever
    machine it ran on.

    All complete recordings of other runs are taken; what the other data set's own splits leave out, too.

    Args:
        split: of the data set that is trained on.
        other: folder with one folder per run, and in it one per recording.

    Raises:
        InputError: no such folder, or no recording of a run that is new.
    """
    if not other.is_dir():
        raise InputError("no such folder", where=str(other), remedy="set data.test_path to a folder of recordings")
    known = {run_of(name) for name in (*split.train, *split.val)}
    found = [one.name for repeats in read_recordings(other).values() for one in repeats.values()]
    test = tuple(sorted(name for name in found if run_of(name) not in known))
    if not test:
        what = f"none of its {len(found)} recordings is of a run that `{split.axis}` neither trains nor validates on"
        raise InputError(what, where=str(other), remedy="name another data.axis or data.test_path")
    return replace(split, axis=f"{split.axis}-{other.resolve().name}", test=test)


def read_from_both(
    split: Split, own: Callable[[str], RunGraph], other: Callable[[str], RunGraph]
) -> Callable[[str], RunGraph]:
    """Reads the runs of the test part from the other data set."""
    test = frozenset(split.test)
    return lambda name: (other if name in test else own)(name)
