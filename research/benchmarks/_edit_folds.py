"""Folds over runs for judging edits: A and B of every pair are held out together, in neither training nor validation.

runs      a - b   c - d - e   f         pairs connect
groups    {a, b}  {c, d, e}   {f}       one group is in one part
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gnnperf.gnn.data.splits import Split
from research.benchmarks._cached_networks import dealt

FOLDS, VALIDATION = 3, 5  # one of FOLDS parts is judged, one of VALIDATION parts of the rest validates


@dataclass(frozen=True)
class Run:
    """What folds need to know of a run.

    Attributes:
        workload: its program; every fold gets some of each.
        size: nodes of its graph.
        recordings: names of its recordings.
    """

    workload: str
    size: float
    recordings: tuple[str, ...]


@dataclass(frozen=True)
class EditFold:
    """One fold.

    Attributes:
        split: recordings to train and to validate on; no test part.
        held_out: runs of the pairs that it judges.
    """

    split: Split
    held_out: frozenset[str]


def groups(runs: Iterable[str], pairs: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Runs that pairs connect, by way of any number of others; each group and all of them in order of names."""
    head = {run: run for run in runs}

    def root(run: str) -> str:
        while head[run] != run:
            run = head[run]
        return run

    for a, b in pairs:
        first, second = sorted((root(a), root(b)))
        head[second] = first
    members: dict[str, list[str]] = {}
    for run in sorted(head):
        members.setdefault(root(run), []).append(run)
    return [tuple(group) for group in members.values()]


def edit_folds(runs: Mapping[str, Run], pairs: Iterable[tuple[str, str]]) -> list[EditFold]:
    """The folds; together they hold out every run once."""
    members = {group[0]: group for group in groups(runs, pairs)}
    sizes = {name: (runs[name].workload, sum(runs[run].size for run in group)) for name, group in members.items()}
    result = []
    for number, held_out in enumerate(dealt(sizes, FOLDS)):
        rest = {name: size for name, size in sizes.items() if name not in held_out}
        validation = dealt(rest, VALIDATION)[0]
        train = [name for name in rest if name not in validation]
        parts = (_recordings(train, members, runs), _recordings(validation, members, runs))
        split = Split(f"edits{number}", *parts, test=())
        result.append(EditFold(split, frozenset(run for name in held_out for run in members[name])))
    return result


def _recordings(
    names: Iterable[str], members: Mapping[str, tuple[str, ...]], runs: Mapping[str, Run]
) -> tuple[str, ...]:
    return tuple(recording for name in names for run in members[name] for recording in runs[run].recordings)
