"""Which communication kernels of different ranks belong to one collective.

rank 0   launch order in step k, group g, all_reduce:   a0  a1  a2
rank 1                                                  a0  a1  a2     matched by position
rank 2   lost its first kernel at the window's head:        a1  a2     aligned from the tail

A send and a receive are matched likewise, by the channel between their ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import numpy as np

from gnnperf.graph.device import Works
from gnnperf.graph.event_columns import RankEvents
from gnnperf.graph.exchange import even_bytes, stated_around
from gnnperf.graph.host_works import POINT_TO_POINT
from gnnperf.graph.node_tables import item_bytes, message_bytes
from gnnperf.trace import is_channel

SEND_RECV = "send_recv"
_ONE_SIDED = ("broadcast", "reduce", "scatter", "gather")  # not every rank needs every other


@dataclass(frozen=True)
class CommPart:
    """One rank's kernel in a collective.

    Attributes:
        rank_index: position of the rank among the traced ones.
        work: number of the work in its rank.
        step: step ordinal.
        launched_ns: when its launch call began.
        begin_ns, end_ns: extent of the kernel.
        key: (kind, group) that must agree over ranks.
        bytes: message size of this rank; NaN unknown.
        group_size: as the trace says; -1 unknown.
        sends: it is the sending end of a send/receive.
        buffered: a send of a host thread: it ends when the system has taken the message, not when that has come.
        hidden: it was mostly over when it was waited for: nobody saw it end.
        even_bytes: message of the even exchange that keeps this rank as busy as its uneven one; NaN: it is even, or the
            trace does not state its parts.
    """

    rank_index: int
    work: int
    step: int
    launched_ns: int
    begin_ns: int
    end_ns: int
    key: tuple[str, str]
    bytes: float
    group_size: int
    sends: bool = False
    buffered: bool = False
    hidden: bool = False
    even_bytes: float = float("nan")


class HasWorks(Protocol):
    """One rank, drafted or built."""

    @property
    def events(self) -> RankEvents: ...  # noqa: D102
    @property
    def works(self) -> Works: ...  # noqa: D102


class Release(Enum):
    """What lets a rank go on after its part in a collective."""

    TRANSFER = auto()  # its end
    PEER = auto()  # the arrival of the other end: from then on the system takes what is sent
    NOTHING = auto()  # it needs nothing of its peers


def comm_parts(
    ranks: Sequence[HasWorks], steps: Sequence[np.ndarray], hidden: Sequence[np.ndarray] | None = None
) -> list[CommPart]:
    """Every communication kernel of whole steps.

    Args:
        ranks: events and works of each.
        steps: per rank [num_works] step; -1 outside.
        hidden: per rank [num_works] bool, see CommPart; None: nowhere.
    """
    parts = []
    for rank_index, (rank, step) in enumerate(zip(ranks, steps, strict=True)):
        works, events = rank.works, rank.events
        uneven = even_bytes(events, item_bytes(events))  # [num_events]
        kind, size, group_size = events.column("collective"), message_bytes(events), events.column("group_size")
        for work in np.flatnonzero(works.is_comm & (step >= 0)).tolist():
            event, issuer = int(works.event[work]), int(np.maximum(works.call[work], works.op[work]))
            launched = int(events.start_ns[issuer]) if issuer >= 0 else int(works.begin_ns[work])
            begin, end = int(works.begin_ns[work]), int(works.end_ns[work])
            group = _group(events, event, int(works.op[work]))
            places = (event, int(works.op[work]), int(works.call[work])) if kind[event] == "all_to_all" else ()
            direct = kind[event] in POINT_TO_POINT and is_channel(group)
            parts.append(
                CommPart(rank_index, work, int(step[work]), launched, begin, end,
                         (SEND_RECV if direct else str(kind[event]), str(group)),
                         float(size[event]), 2 if direct else int(group_size[event]),
                         sends=kind[event] == "send", buffered=kind[event] == "send" and not events.is_device[event],
                         hidden=hidden is not None and bool(hidden[rank_index][work]),
                         even_bytes=stated_around(events, uneven, places))
            )  # fmt: skip
    return parts


def _group(events: RankEvents, event: int, op: int) -> str | None:
    """The group that an event or the op that issued it states."""
    column = events.table.events["group"]
    codes = [int(column.cat.codes.iloc[i]) for i in (event, op) if i >= 0]
    return next((str(column.cat.categories[code]) for code in codes if code >= 0), None)


def match(parts: list[CommPart]) -> list[tuple[CommPart, ...]]:
    """Group the parts into collectives; a group of fewer parts than its group size is incomplete.

    A send or receive whose peer no trace states stands alone.
    """
    lanes: dict[tuple[int, tuple[str, str], int], dict[int, list[CommPart]]] = {}
    for part in sorted(parts, key=lambda p: p.launched_ns):
        alone = part.rank_index if part.key[0] in POINT_TO_POINT else -1
        lanes.setdefault((part.step, part.key, alone), {}).setdefault(part.rank_index, []).append(part)
    matched: list[tuple[CommPart, ...]] = []
    for by_rank in lanes.values():
        longest = max(len(sequence) for sequence in by_rank.values())
        for from_tail in range(longest, 0, -1):
            matched.append(tuple(s[-from_tail] for s in by_rank.values() if len(s) >= from_tail))
    return matched


def releases(groups: list[tuple[CommPart, ...]]) -> list[list[Release]]:
    """Per group and part: what lets its rank go on.

    A rank that needs nothing of its peers (the root of a broadcast, an eager send) leaves when it likes. One recording
    of it leaving before the last peer arrived shows that for every collective of its kind, group and size. Where that
    would leave nobody to wait (the root changes), each recording speaks for itself.
    """
    seen = {_role(p) for g in groups for p in g if _left_early(p, g)}
    result = []
    for group in groups:
        free = [_role(p) in seen for p in group]
        free = [_left_early(p, group) for p in group] if all(free) else free
        result.append([_release(p, leaves) for p, leaves in zip(group, free, strict=True)])
    return result


def _release(part: CommPart, leaves: bool) -> Release:
    if leaves:
        return Release.NOTHING
    return Release.PEER if part.key[0] == SEND_RECV and part.buffered else Release.TRANSFER


def _left_early(part: CommPart, group: tuple[CommPart, ...]) -> bool:
    one_sided = part.key[0] in _ONE_SIDED or (part.key[0] == SEND_RECV and part.sends)
    return one_sided and part.end_ns < max(p.begin_ns for p in group)


def _role(part: CommPart) -> tuple[object, ...]:
    return part.rank_index, part.key, part.bytes if part.bytes == part.bytes else None  # NaN: size unknown


def is_complete(group: tuple[CommPart, ...], world_size: int) -> bool:
    """Whether every rank of the group was traced and has its part."""
    stated = max(part.group_size for part in group)
    return len(group) == (stated if stated > 0 else world_size)


def is_consistent(group: tuple[CommPart, ...], tolerance_ns: int = 50_000) -> bool:
    """Whether sizes agree and the parts overlap in time (host clocks of one machine agree to 50 us)."""
    kind = group[0].key[0]
    sizes = {part.bytes for part in group if not np.isnan(part.bytes)}
    overlap = max(p.begin_ns for p in group) <= min(p.end_ns for p in group) + tolerance_ns
    return (overlap or kind in (*_ONE_SIDED, SEND_RECV)) and (len(sizes) <= 1 or kind == "all_to_all")
