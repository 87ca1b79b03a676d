"""Host threads -> T1 to T5 (Lin et al. 2022, section 3.2).

thread  ----|      op A                        |----|  op B  |---
        T1   T2  T4   T5  T4        T3           T1    T5
                launch   launch
An op is the outermost operator; ranges around operators (modules, autograd nodes, annotations) are scopes,
and time in a scope outside ops is T1.
"""

from dataclasses import dataclass, fields

import numpy as np

from gnnperf.core import Segment
from gnnperf.graph.event_columns import RankEvents, by_category

_LAST = np.iinfo(np.int32).max
SEGMENTS = tuple(sorted(Segment))


@dataclass(frozen=True)
class Pieces:
    """Stretches of host time in order of thread and execution; all [num_pieces]."""

    thread: np.ndarray  # host thread
    begin_ns: np.ndarray
    end_ns: np.ndarray
    segment: np.ndarray  # int8, place in SEGMENTS
    op: np.ndarray  # event id of the op, or of the call if no op encloses it (T1: what comes next); -1 at a step's end
    call: np.ndarray  # event id of the runtime call of a T4; -1 otherwise
    burst: np.ndarray  # number of the fork/join this piece takes part in; -1 none
    unit: np.ndarray  # sort key: the op's ordinal over all threads
    inner: np.ndarray  # sort key: the position within the op

    def __len__(self) -> int:
        return len(self.thread)

    def is_segment(self, segment: Segment) -> np.ndarray:
        """[num_pieces] bool."""
        return self.segment == SEGMENTS.index(segment)

    def take(self, index: np.ndarray) -> "Pieces":
        """Rows by index or mask, as copies."""
        return Pieces(*(getattr(self, f.name)[index] for f in fields(self)))

    def replaced(self, **columns: np.ndarray) -> "Pieces":
        """The same rows with some columns exchanged."""
        return Pieces(*(columns.get(f.name, getattr(self, f.name)) for f in fields(self)))


def concat(parts: "list[Pieces]", is_used: np.ndarray | None = None) -> "Pieces":
    """All rows, or those `is_used` [num_rows], in order of execution; equal keys keep the order of `parts`."""
    order = np.lexsort([np.concatenate([getattr(p, key) for p in parts]) for key in ("inner", "unit")])
    order = order if is_used is None else order[is_used[order]]
    return Pieces(*(np.concatenate([getattr(p, f.name) for p in parts])[order] for f in fields(Pieces)))


def host_pieces(events: RankEvents, main_thread: int, marks_ns: np.ndarray) -> "Pieces":
    """Cut every host thread into segments; `marks_ns` [num_marks] cut the main thread's T1 at step boundaries."""
    calls = events.segmenting_calls
    own = np.arange(len(events.op))
    ops = np.flatnonzero(events.is_op & (events.op == own))
    launches = np.zeros(len(own) + 1, dtype=bool)  # [num_events], and a place for calls outside ops
    launches[events.op[calls]] = True
    plain = ops[~launches[ops]]
    units = np.concatenate([ops, calls[events.op[calls] < 0]])
    between, unit_of = _between(events, units, main_thread, marks_ns)
    parts = [
        between,
        _rows(events, plain, events.start_ns[plain], events.end_ns[plain], Segment.T5, unit_of, 1),
        *_calls_and_around(events, calls, unit_of),
    ]
    return concat(parts)


def split_calls(pieces: "Pieces", calls: np.ndarray, moments_ns: np.ndarray) -> "Pieces":
    """Cut the T4 of each call in two at a moment: what starts the copy, and what waits for it to end."""
    at = dict(zip(calls.tolist(), moments_ns.tolist(), strict=True))
    index = np.flatnonzero(np.isin(pieces.call, calls))
    moment = np.array([at[c] for c in pieces.call[index].tolist()], dtype=np.int64)
    moment = np.clip(moment, pieces.begin_ns[index], pieces.end_ns[index])
    order = np.sort(np.r_[np.arange(len(pieces)), index])  # every cut piece appears twice, in place
    result = pieces.take(order)
    cut = np.flatnonzero(order[1:] == order[:-1]) if len(order) else index
    result.end_ns[cut] = moment
    result.begin_ns[cut + 1] = moment
    return result


def _rows(
    events: RankEvents, op: np.ndarray, begin: np.ndarray, end: np.ndarray, segment: Segment,
    unit_of: np.ndarray, inner: int | np.ndarray,
) -> "Pieces":  # fmt: skip
    n = len(op)
    none = np.full(n, -1)
    named = np.full(n, SEGMENTS.index(segment), dtype=np.int8)
    return Pieces(events.thread[op], begin, end, named, op, none, none, unit_of[op], np.broadcast_to(inner, n))


def _calls_and_around(events: RankEvents, calls: np.ndarray, unit_of: np.ndarray) -> "list[Pieces]":
    """T4 for every call; in an op T2 before the first call, T5 between calls, T3 after the last."""
    start, end = events.start_ns, events.end_ns
    owner = np.where(events.op[calls] >= 0, events.op[calls], calls)
    sort = np.lexsort((start[calls], owner))
    order, op = calls[sort], owner[sort]
    n = len(order)
    first = np.r_[True, op[1:] != op[:-1]][:n]
    last = np.r_[op[1:] != op[:-1], True][-n:] if n else first
    position = np.arange(n) - np.maximum.accumulate(np.where(first, np.arange(n), 0)) if n else np.zeros(0, np.int64)
    in_op = op != order
    following = np.where(last, end[op], np.r_[start[order[1:]], 0] if n else start[order])
    after = np.maximum(following, end[order])
    calls_t4 = _rows(events, op, start[order], end[order], Segment.T4, unit_of, 2 + 2 * position)
    head, tail, middle = first & in_op, last & in_op, ~last & in_op
    return [
        _rows(events, op[head], start[op[head]], start[order[head]], Segment.T2, unit_of, 1),
        calls_t4.replaced(call=order),
        _rows(events, op[middle], end[order[middle]], after[middle], Segment.T5, unit_of, 3 + 2 * position[middle]),
        _rows(events, op[tail], end[order[tail]], after[tail], Segment.T3, unit_of, _LAST),
    ]


def _ended_by(thread: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """[n] latest end so far within each thread (rows sorted by thread): a boundary may lie inside an op."""
    if not len(end_ns):
        return end_ns
    span = int(end_ns.max() - end_ns.min()) + 1
    above = np.cumsum(np.r_[False, thread[1:] != thread[:-1]]) * span  # lifts each thread over the ones before it
    return np.maximum.accumulate(end_ns + above) - above


def _between(
    events: RankEvents, units: np.ndarray, main_thread: int, marks_ns: np.ndarray
) -> "tuple[Pieces, np.ndarray]":
    """T1 before every unit but the first of its thread; zero-length ones too, so that steps align.

    A step boundary counts as a unit of no length: the T1 before it ends the step, the T1 after it opens the next.
    Returned with the pieces: [num_events] ordinal of each unit.
    """
    unit = np.r_[units, np.full(len(marks_ns), -1)]
    thread = np.r_[events.thread[units], np.full(len(marks_ns), main_thread)]
    begin, end = np.r_[events.start_ns[units], marks_ns], np.r_[events.end_ns[units], marks_ns]
    order = np.lexsort((end, begin, thread))
    unit, thread, begin, end = unit[order], thread[order], begin[order], end[order]
    unit_of = np.full(len(events.op), -1)
    unit_of[unit[unit >= 0]] = np.flatnonzero(unit >= 0)
    after = np.flatnonzero(thread[1:] == thread[:-1]) + 1  # units that have one before them
    gap_begin = np.minimum(_ended_by(thread, end)[after - 1], begin[after])
    n = len(after)
    free, named = np.full(n, -1), np.full(n, SEGMENTS.index(Segment.T1), dtype=np.int8)
    pieces = Pieces(
        thread[after], gap_begin, begin[after], named, unit[after], free, free, after, np.zeros(n, np.int64)
    )
    return pieces, unit_of


# Fork and join of autograd threads.
#
# main      T1a |· · · · · · · waiting · · · · · · ·| T1b        loss.backward()
#               \                                  /
# autograd       |Backward A|T1|Backward B|T1|...  |
# A gap of the main thread that contains a whole burst of an autograd thread is a call to backward: the burst
# starts after T1a (fork) and T1b starts after the burst (join). Nesting by itself decides, never a distance.


@dataclass(frozen=True)
class Bursts:
    """Where threads fork and join; positions in the Pieces they came with."""

    fork: np.ndarray  # [num_bursts] main-thread T1 before the burst
    join: np.ndarray  # [num_bursts] ... and after it
    first: np.ndarray  # [num_bursts] first piece of the burst (one row per thread of a burst)
    last: np.ndarray  # [num_bursts] last piece of it


def fork_and_join(events: RankEvents, pieces: "Pieces", main_thread: int) -> "tuple[Pieces, Bursts]":
    """Split the main thread's gaps at the bursts they contain, drop the bursts' idle time in between."""
    names = events.table.events["name"]
    engine = by_category(names, lambda n: n.startswith("autograd::engine::") or n.endswith("Backward0"), bool)
    autograd = np.setdiff1d(np.unique(events.thread[engine & events.is_op]), [main_thread])
    gaps = np.flatnonzero((pieces.thread == main_thread) & pieces.is_segment(Segment.T1))
    worker = np.flatnonzero(np.isin(pieces.thread, autograd) & ~pieces.is_segment(Segment.T1))
    # [num_worker] gap of each worker piece, -1 none
    gap = _containing(pieces, gaps, worker) if len(gaps) else np.full(len(worker), -1)
    inside, gap = worker[gap >= 0], gap[gap >= 0]
    if not len(inside):
        empty = np.zeros(0, dtype=np.int64)
        return pieces, Bursts(empty, empty, empty, empty)
    number = np.full(len(pieces), -1)
    number[inside] = gap
    order = np.argsort(gap, kind="stable")
    split, where = np.unique(gap[order], return_index=True)  # gaps with a burst
    first_moment = np.minimum.reduceat(pieces.begin_ns[inside[order]], where)
    last_moment = np.maximum.reduceat(pieces.end_ns[inside[order]], where)
    number[split] = split
    whole = pieces.take(split).replaced(burst=split)
    before, after = whole.replaced(end_ns=first_moment), whole.replaced(begin_ns=last_moment)
    rest = np.ones(len(pieces), dtype=bool)
    rest[split] = False
    # T1 of an autograd thread whose next piece opens a burst.
    idle = np.isin(pieces.thread, autograd) & pieces.is_segment(Segment.T1)
    following, previous = np.r_[number[1:], -1], np.r_[-1, number[:-1]]
    rest &= ~(idle & (following >= 0) & (following != previous))
    result = concat([pieces.replaced(burst=number), before, after], np.append(rest, np.ones(2 * len(split), bool)))
    return result, _locate(result, main_thread)


def _containing(pieces: "Pieces", gaps: np.ndarray, worker: np.ndarray) -> np.ndarray:
    """[num_worker] the gap that contains each worker piece entirely; -1 none."""
    slot = np.searchsorted(pieces.begin_ns[gaps], pieces.begin_ns[worker], side="right") - 1
    gap = gaps[np.maximum(slot, 0)]
    contained = (slot >= 0) & (pieces.begin_ns[gap] <= pieces.begin_ns[worker])
    return np.where(contained & (pieces.end_ns[worker] <= pieces.end_ns[gap]), gap, -1)


def _locate(pieces: "Pieces", main_thread: int) -> Bursts:
    """Positions of forks, joins, first and last pieces, one row per (burst, thread)."""
    on_main = np.flatnonzero((pieces.burst >= 0) & (pieces.thread == main_thread))
    fork_of = dict(zip(pieces.burst[on_main[::-1]].tolist(), on_main[::-1].tolist(), strict=True))
    join_of = dict(zip(pieces.burst[on_main].tolist(), on_main.tolist(), strict=True))
    member = np.flatnonzero((pieces.burst >= 0) & (pieces.thread != main_thread))
    order = np.lexsort((pieces.thread[member], pieces.burst[member]))
    burst, thread = pieces.burst[member[order]], pieces.thread[member[order]]  # [num_member]
    starts = np.flatnonzero(np.r_[True, (burst[1:] != burst[:-1]) | (thread[1:] != thread[:-1])])
    stops = np.r_[starts[1:], len(order)] - 1
    numbers = burst[starts].tolist()
    return Bursts(
        fork=np.array([fork_of[b] for b in numbers], np.int64), join=np.array([join_of[b] for b in numbers], np.int64),
        first=member[order[starts]], last=member[order[stops]],
    )  # fmt: skip
