"""Between which ranks a collective runs, where its own metadata does not say: channels of sends, groups of gloo."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, islice
from typing import Any

import numpy as np

from gnnperf.trace.columns import categorical, coded
from gnnperf.trace.kineto import CommArgs
from gnnperf.trace.metadata import ranks_text
from gnnperf.trace.table import TraceTable

# Between which ranks a send or a receive goes: its channel, "[0>1]", is what it has instead of a process group.
#
# rank 0   c10d::send    target 1   [0>1]  |            three places may state the peer, as a rank of the process group:
# rank 1   c10d::recv_   source 0   [0>1]  | one         the op's own inputs (its third; the fourth is a tag), the
#                                                        metadata (torch >= 2.4), the range's name "nccl:send 0->1"

POINT_TO_POINT = ("send", "recv")
CHANNEL = re.compile(r"\[\d{1,8}>\d{1,8}\](?:#\d{1,18})?", re.ASCII)
RANGE_NAME = re.compile(r"\w+:(?:send|recv) (\d{1,8})(?:->|<-)(\d{1,8})$", re.ASCII)
PEER, TAG = 2, 3  # positions in c10d::send(tensors, group, target, tag) and c10d::recv_(tensors, group, source, tag)


def peer_of_metadata(kind: str | None, args: CommArgs | None) -> int | None:
    """The rank of the group that a call's metadata names as its other end."""
    if args is None or kind not in POINT_TO_POINT:
        return None
    return args.target if kind == "send" else args.source


def peer_of_name(name: str) -> int | None:
    """The rank of the group that a range's name gives as its other end."""
    result = RANGE_NAME.match(name)
    return int(result[2]) if result else None


def peer_of_inputs(name: str, values: Any) -> tuple[int, int] | None:
    """(rank of the group, tag) that an op's inputs name; None unknown, or any rank."""
    if not name.startswith(("c10d::send", "c10d::recv_")) or name.startswith("c10d::recv_any"):
        return None
    try:
        return int(values[PEER]), int(values[TAG])
    except (TypeError, ValueError, IndexError):
        return None


def channel(kind: str, rank: int, peer: int, group_ranks: Sequence[int], tag: int = 0) -> str | None:
    """The channel of a call of global rank `rank` with rank `peer` of its group; None if the group has no such rank."""
    if not 0 <= peer < len(group_ranks) or rank not in group_ranks:
        return None
    source, target = (rank, group_ranks[peer]) if kind == "send" else (group_ranks[peer], rank)
    return f"[{source}>{target}]" + (f"#{tag}" if tag > 0 else "")


def is_channel(group: str | None) -> bool:
    """Whether a group's text is a channel."""
    return group is not None and CHANNEL.fullmatch(group) is not None


# Which process group each of gloo's collectives belongs to. Its ranges do not say; the file lists the rank's groups.
#
# rank 0   thread 21, 22   A A A A        groups [0,1,2,3] [0,2] [0,1], in order of creation
#          thread 24, 25      B  B        two threads work for a group; threads, too, are numbered in order of creation
# rank 1   thread 31       A A A A        A is [0,1]: with rank 2 its parts would not overlap
#          thread 33, 34      B  B
#
# A group is refuted if its members did not run the same collectives, or if a part ended before another began. Of what
# is left the largest groups are taken: parts of a group of four also fit two groups of two.

Group = tuple[int, ...]  # its ranks
THREADS = 2  # that gloo gives a group
MAX_CHOICES = 100_000  # a run of four ranks with two groups each has less than a hundred
_OVERLAP = 0.98  # share of collectives whose parts must overlap
_ONE_SIDED = ("broadcast", "reduce", "scatter", "gather")  # some ranks leave when they like


@dataclass(frozen=True)
class _Ranges:
    """One rank's collectives in order of kind, size and start; all [n]. `what` says kind and size."""

    rank: int
    row: np.ndarray
    thread: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray
    what: list[tuple[str, float]]


def name_groups(tables: Sequence[TraceTable], groups: Mapping[int, Sequence[Group]]) -> list[TraceTable]:
    """The tables of one run with the groups of gloo's collectives, given each rank's groups in order of creation."""
    ranges = {t.meta.rank: _ranges(t) for t in tables}
    several = [r for r in sorted(ranges) if len(ranges[r].row) and len(set(groups.get(r, ()))) > 1]
    in_steps = {t.meta.rank: _steps_of(t, ranges[t.meta.rank]) for t in tables if t.meta.rank in several}
    result = _search([(in_steps[r], groups[r]) for r in several])
    return [_named(t, _of_rows(ranges[t.meta.rank], groups.get(t.meta.rank, ()), result)) for t in tables]


def _ranges(table: TraceTable) -> _Ranges:
    events = table.events
    name, kind = events["name"].astype("str"), events["collective"]
    mine = name.str.startswith("gloo:") & kind.notna() & ~kind.isin(POINT_TO_POINT) & events["group"].isna()
    row = np.flatnonzero(mine.to_numpy())
    size = np.nan_to_num(events["in_elements"].to_numpy()[row], nan=-1.0)
    what = [
        (k, s if k not in ("all_to_all", "all_gather") else 0.0)  # these may be uneven
        for k, s in zip(kind.iloc[row].astype("str").tolist(), size.tolist(), strict=True)
    ]
    order = sorted(range(len(row)), key=lambda i: (what[i], i))  # two threads may begin theirs in either order
    row, what = row[order], [what[i] for i in order]
    begin = events["start_ns"].to_numpy() + table.meta.base_time_ns
    end = begin + events["duration_ns"].to_numpy()
    return _Ranges(table.meta.rank, row, events["thread"].to_numpy()[row], begin[row], end[row], what)


def _steps_of(table: TraceTable, ranges: _Ranges) -> _Ranges:
    """Those inside whole steps, which every rank has; all of them where no step is marked."""
    marks = table.events[table.events["name"].astype("str").str.startswith("ProfilerStep")]
    if not len(marks):
        return ranges
    begin = marks["start_ns"] + table.meta.base_time_ns
    last = int((begin + marks["duration_ns"]).max())
    inside = np.flatnonzero((ranges.begin_ns >= int(begin.min())) & (ranges.begin_ns < last))
    return _Ranges(ranges.rank, ranges.row[inside], ranges.thread[inside], ranges.begin_ns[inside],
                   ranges.end_ns[inside], [ranges.what[i] for i in inside.tolist()])  # fmt: skip


def _of_rows(ranges: _Ranges, groups: Sequence[Group], result: Mapping[int, Mapping[int, Group]]) -> dict[int, Group]:
    """Row -> group."""
    if len(set(groups)) == 1:
        return dict.fromkeys(ranges.row.tolist(), groups[0])
    of_thread = result.get(ranges.rank, {})
    return {r: of_thread[t] for r, t in zip(ranges.row.tolist(), ranges.thread.tolist(), strict=True) if t in of_thread}


def _named(table: TraceTable, of_row: Mapping[int, Group]) -> TraceTable:
    if not of_row:
        return table
    stated = table.events["group"].astype(object)
    group = stated.where(stated.notna(), None).to_numpy(copy=True)
    size = table.events["group_size"].to_numpy(copy=True)
    for row, ranks in of_row.items():
        group[row], size[row] = ranks_text(ranks), len(ranks)
    return replace(table, events=table.events.assign(group=categorical(*coded(group.tolist())), group_size=size))


def _search(ranks: Sequence[tuple[_Ranges, Sequence[Group]]]) -> dict[int, dict[int, Group]]:
    """Rank -> thread -> group: the choice of largest groups that nothing refutes; empty where there is none.

    Where many threads and groups leave too many choices to look at, there is none either.
    """
    best: tuple[int, dict[int, dict[int, Group]]] = (-1, {})
    left = MAX_CHOICES
    traced = {ranges.rank: ranges for ranges, _ in ranks}

    def extend(chosen: dict[int, dict[int, Group]], rest: Sequence[tuple[_Ranges, Sequence[Group]]]) -> None:
        nonlocal best, left
        if not rest:
            total = sum(len(group) for of_thread in chosen.values() for group in of_thread.values())
            if total > best[0]:
                best = (total, chosen)
            return
        ranges, groups = rest[0]
        for of_thread in islice(_assignments(ranges, groups), max(left, 0)):
            left -= 1
            extended = chosen | {ranges.rank: of_thread}
            if _is_possible(ranges.rank, extended, traced):
                extend(extended, rest[1:])

    extend({}, ranks)
    return best[1] if left > 0 else {}


def _assignments(ranges: _Ranges, groups: Sequence[Group]) -> Iterator[dict[int, Group]]:
    """Every way to give a rank's threads to its groups, in order of creation, two threads at most to each."""
    threads = np.unique(ranges.thread).tolist()
    if len(threads) > THREADS * len(groups):
        return
    for positions in islice(combinations_with_replacement(range(len(groups)), len(threads)), MAX_CHOICES):
        if all(positions.count(p) <= THREADS for p in positions):
            yield {thread: tuple(groups[p]) for thread, p in zip(threads, positions, strict=True)}


def _is_possible(newest: int, chosen: Mapping[int, Mapping[int, Group]], traced: Mapping[int, _Ranges]) -> bool:
    """Whether the newest rank's groups agree with those of the ranks chosen before."""
    for group in {g for of_thread in chosen.values() for g in of_thread.values() if newest in g}:
        members = [r for r in group if r in chosen]
        parts = [np.flatnonzero(np.isin(traced[r].thread, [t for t, g in chosen[r].items() if g == group]))
                 for r in members]  # fmt: skip
        if any([traced[r].what[i] for i in p] != [traced[members[0]].what[i] for i in parts[0]]
               for r, p in zip(members, parts, strict=True)):  # fmt: skip
            return False
        if len(members) > 1 and not _overlap([traced[r] for r in members], parts):
            return False
    return True


def _overlap(members: Sequence[_Ranges], parts: Sequence[np.ndarray]) -> bool:
    """Whether no one left before everybody had come."""
    bound = np.array([members[0].what[i][0] not in _ONE_SIDED for i in parts[0]], dtype=bool)  # [n]
    begin = np.stack([m.begin_ns[p] for m, p in zip(members, parts, strict=True)])  # [num_members, n]
    end = np.stack([m.end_ns[p] for m, p in zip(members, parts, strict=True)])
    together = (begin.max(axis=0) <= end.min(axis=0))[bound]
    return bool(together.mean() >= _OVERLAP) if len(together) else True
