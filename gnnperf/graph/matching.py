"""Which communication kernels of different ranks belong to one collective.

rank 0   launch order in step k, group g, all_reduce:   a0  a1  a2
rank 1                                                  a0  a1  a2     matched by position
rank 2   lost its first kernel at the window's head:        a1  a2     aligned from the tail

A send and a receive are matched likewise, by the channel between their ranks.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import isnan
from typing import Any

import numpy as np

from gnnperf.graph.event_columns import RankEvents, by_category
from gnnperf.graph.node_tables import item_bytes, message_bytes
from gnnperf.graph.works import POINT_TO_POINT, Works
from gnnperf.trace import is_channel

# Uneven exchanges: what an all-to-all with parts of different sizes moves, by the sizes that its call states.
#
# c10d::alltoall_base_(output, input, group, output_split_sizes, input_split_sizes, ...)   rows of the first dimension
# c10d::alltoall_(outputs, inputs, group, ...)                                             lists of tensors
#
# The rank that sends or receives most rules. An even exchange of S bytes per rank moves (n-1)/n S over its link, so one
# that moves b there is as long as an even one of n/(n-1) b. What stays on a rank does not count.

BASE, LISTS = "c10d::alltoall_base_", "c10d::alltoall_"
RECEIVED_AT, SENT_AT = 3, 4  # split sizes among the inputs of BASE
RANKS = re.compile(r"\[\d+(,\d+)*\]")

Splits = tuple[list[float], list[float]]  # elements to and from each rank of the group, in its order


def even_bytes(events: RankEvents) -> dict[int, float]:
    """Event -> message of the even exchange that keeps this rank as busy, where an uneven one states its parts."""
    results = {}
    calls = np.flatnonzero(by_category(events.table.events["name"], (BASE, LISTS).__contains__, bool))
    columns = (calls.tolist(), events.column("group", calls).tolist(), item_bytes(events, calls).tolist())
    for event, group, item in zip(*columns, strict=True):
        splits = _splits(events, event)
        place = None if splits is None else _place(events.rank, group, len(splits[0]))
        if splits is not None and place is not None and not isnan(item):
            ranks, busiest = len(splits[0]), max(sum(parts) - parts[place] for parts in splits)
            results[event] = busiest * ranks / (ranks - 1) * item
    return results


def stated_around(events: RankEvents, values: Mapping[int, float], places: Sequence[int]) -> float:
    """The first known one of `values` at some events or at what encloses them; NaN without any."""
    for event in places:
        while event >= 0:
            if event in values:
                return values[event]
            event = int(events.parent[event])
    return float("nan")


def _splits(events: RankEvents, event: int) -> Splits | None:
    """Elements sent to and received from each rank; None where it is not stated, or the call is even."""
    row = events.table.events.iloc[event]
    if events.name[event] == LISTS:
        received, sent = _parts(_json(row["input_dims"]), 0), _parts(_json(row["input_dims"]), 1)
    else:
        values = _json(row["input_values"])
        sent = _elements(values, SENT_AT, float(row["in_elements"]))
        received = _elements(values, RECEIVED_AT, float(row["out_elements"]))
    return (sent, received) if sent is not None and received is not None and len(sent) == len(received) > 1 else None


def _elements(values: Any, place: int, total: float) -> list[float] | None:
    """Elements of each part from its rows, as all parts together have `total` elements."""
    rows = _json(values[place]) if isinstance(values, list) and len(values) > place else None
    if not isinstance(rows, list) or not rows or not all(isinstance(n, int) and n >= 0 for n in rows):
        return None
    if sum(rows) == 0:
        return [0.0] * len(rows)
    return None if np.isnan(total) else [total * n / sum(rows) for n in rows]


def _parts(dims: Any, place: int) -> list[float] | None:
    """Elements of each tensor of a list."""
    shapes = dims[place] if isinstance(dims, list) and len(dims) > place else None
    if not isinstance(shapes, list) or not all(isinstance(shape, list) for shape in shapes):
        return None
    return [float(np.prod(shape)) for shape in shapes]


def _place(rank: int, group: str | None, ranks: int) -> int | None:
    """The rank's place in its group of `ranks`: in the list of ranks; in all ranks, where no group is stated."""
    if group is None:
        return rank if rank < ranks else None
    members = [int(member) for member in group[1:-1].split(",")] if RANKS.fullmatch(group) else []
    return members.index(rank) if rank in members and len(members) == ranks else None


def _json(text: Any) -> Any:
    """The value of a JSON text; None where it is none (a profiler cuts long lists off)."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


SEND_RECV = "send_recv"
_ONE_SIDED = ("broadcast", "reduce", "scatter", "gather")  # not every rank needs every other
_CLOCKS_AGREE_NS = 50_000  # of the hosts of one machine


@dataclass(frozen=True)
class CommPart:
    """One rank's kernel in a collective."""

    rank_index: int  # position of the rank among the traced ones
    work: int  # number of the work in its rank
    step: int  # step ordinal
    launched_ns: int  # when its launch call began
    begin_ns: int  # of the kernel
    end_ns: int
    key: tuple[str, str]  # (kind, group) that must agree over ranks
    bytes: float  # message size of this rank; NaN unknown
    group_size: int  # as the trace states; -1 unknown
    sends: bool = False  # it is the sending end of a send/receive
    # a send of a host thread: it ends when the system has taken the message, not when that has come
    buffered: bool = False
    hidden: bool = False  # it was mostly over when it was waited for: nothing saw it end
    # message of the even exchange that keeps this rank as busy as its uneven one; NaN: it is even, or the trace does
    # not state its parts
    even_bytes: float = float("nan")


class Release(Enum):
    """What lets a rank go on after its part in a collective."""

    TRANSFER = auto()  # its end
    PEER = auto()  # the arrival of the other end: from then on the system takes what is sent
    NOTHING = auto()  # it needs nothing of its peers


def comm_parts(
    rank_index: int, events: RankEvents, works: Works, step: np.ndarray, hidden: np.ndarray | None = None
) -> list[CommPart]:
    """Every communication kernel of a rank in whole steps; `step` (-1: outside) and `hidden` are [num_works]."""
    parts, uneven, issuers = [], even_bytes(events), np.maximum(works.call, works.op)
    kinds, sizes = events.column("collective", works.event), message_bytes(events, works.event)  # [num_works] each
    group_sizes, groups, of_op = (events.column(*c) for c in (
        ("group_size", works.event), ("group", works.event), ("group", works.op)))  # fmt: skip
    for work in np.flatnonzero(works.is_comm & (step >= 0)).tolist():
        event, issuer = int(works.event[work]), int(issuers[work])
        launched = int(events.start_ns[issuer]) if issuer >= 0 else int(works.begin_ns[work])
        begin, end = int(works.begin_ns[work]), int(works.end_ns[work])
        named = groups[work] if groups[work] is not None or works.op[work] < 0 else of_op[work]
        kind, group = kinds[work], None if named is None else str(named)
        places = (event, int(works.op[work]), int(works.call[work])) if kind == "all_to_all" else ()
        direct = kind in POINT_TO_POINT and is_channel(group)
        parts.append(
            CommPart(rank_index, work, int(step[work]), launched, begin, end,
                     (SEND_RECV if direct else str(kind), str(group)),
                     float(sizes[work]), 2 if direct else int(group_sizes[work]),
                     sends=kind == "send", buffered=kind == "send" and not events.is_device[event],
                     hidden=hidden is not None and bool(hidden[work]), even_bytes=stated_around(events, uneven, places))
        )  # fmt: skip
    return parts


def match(parts: list[CommPart]) -> list[tuple[CommPart, ...]]:
    """Group the parts into collectives; a group of fewer parts than its group size is incomplete.

    A send or receive whose peer no trace states stands only.
    """
    lanes: dict[tuple[int, tuple[str, str], int], dict[int, list[CommPart]]] = {}
    for part in sorted(parts, key=lambda p: p.launched_ns):
        isolated = part.rank_index if part.key[0] in POINT_TO_POINT else -1
        lanes.setdefault((part.step, part.key, isolated), {}).setdefault(part.rank_index, []).append(part)
    matched: list[tuple[CommPart, ...]] = []
    for by_rank in lanes.values():
        longest = max(len(sequence) for sequence in by_rank.values())
        matched += [tuple(s[-i] for s in by_rank.values() if len(s) >= i) for i in range(longest, 0, -1)]
    return matched


def releases(groups: list[tuple[CommPart, ...]]) -> list[list[Release]]:
    """Per group and part: what lets its rank go on.

    A rank that needs nothing of its peers (the root of a broadcast, an eager send) leaves when it likes. One recording
    of it leaving before the last peer arrived shows that for every collective of its kind, group and size. Where that
    would leave no one to wait (the root changes), each recording speaks for itself.
    """
    seen = {_role(p) for g in groups for p in g if _left_early(p, g)}
    result = []
    for group in groups:
        free = [_role(p) in seen for p in group]
        free = [_left_early(p, group) for p in group] if all(free) else free
        held = [Release.PEER if p.key[0] == SEND_RECV and p.buffered else Release.TRANSFER for p in group]
        result.append([Release.NOTHING if leaves else by for leaves, by in zip(free, held, strict=True)])
    return result


def _left_early(part: CommPart, group: tuple[CommPart, ...]) -> bool:
    one_sided = part.key[0] in _ONE_SIDED or (part.key[0] == SEND_RECV and part.sends)
    return one_sided and part.end_ns < max(p.begin_ns for p in group)


def _role(part: CommPart) -> tuple[object, ...]:
    return part.rank_index, part.key, part.bytes if part.bytes == part.bytes else None  # NaN: size unknown


def group_size(group: tuple[CommPart, ...], world_size: int) -> int:
    """Ranks of the group as its parts state it, else all."""
    stated = max(part.group_size for part in group)
    return stated if stated > 0 else world_size


def is_consistent(group: tuple[CommPart, ...]) -> bool:
    """Whether sizes agree and the parts overlap in time."""
    kind = group[0].key[0]
    sizes = {part.bytes for part in group if not np.isnan(part.bytes)}
    overlap = max(p.begin_ns for p in group) <= min(p.end_ns for p in group) + _CLOCKS_AGREE_NS
    return (overlap or kind in (*_ONE_SIDED, SEND_RECV)) and (len(sizes) <= 1 or kind == "all_to_all")
