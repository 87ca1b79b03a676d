"""Fork and join of autograd threads.

main      T1a |· · · · · · · waiting · · · · · · ·| T1b        loss.backward()
              \\                                  /
autograd       |Backward A|T1|Backward B|T1|...  |
A gap of the main thread that contains a whole burst of an autograd thread is a call to backward: the burst
starts after T1a (fork) and T1b starts after the burst (join). Nesting by itself decides, never a distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import EventKind, Segment
from gnnperf.graph.event_columns import RankEvents, by_category
from gnnperf.graph.host import Pieces, concat


@dataclass(frozen=True)
class Bursts:
    """Where threads fork and join; positions in the Pieces they came with.

    Attributes:
        fork, join: [num_bursts] main-thread T1 before and after the burst.
        first, last: [num_bursts] first and last piece of the burst (one row per thread of a burst).
    """

    fork: np.ndarray
    join: np.ndarray
    first: np.ndarray
    last: np.ndarray


def fork_and_join(events: RankEvents, pieces: Pieces, main_thread: int) -> tuple[Pieces, Bursts]:
    """Split the main thread's gaps at the bursts they contain, drop the bursts' idle time in between."""
    autograd = _autograd_threads(events, main_thread)
    gaps = np.flatnonzero((pieces.thread == main_thread) & (pieces.segment == Segment.T1))
    worker = np.flatnonzero(np.isin(pieces.thread, autograd) & (pieces.segment != Segment.T1))
    # [num_worker] gap of each worker piece, -1 none
    gap = _containing(pieces, gaps, worker) if len(gaps) else np.full(len(worker), -1)
    inside, gap = worker[gap >= 0], gap[gap >= 0]
    if not len(inside):
        empty = np.zeros(0, dtype=np.int64)
        return pieces, Bursts(empty, empty, empty, empty)
    number = np.full(len(pieces), -1)
    number[inside] = gap
    split, first_moment, last_moment = _extent(pieces, inside, gap)
    number[split] = split
    whole = pieces.take(split).replaced(burst=split)
    before, after = whole.replaced(end_ns=first_moment), whole.replaced(begin_ns=last_moment)
    rest = np.ones(len(pieces), dtype=bool)
    rest[split] = False
    rest &= ~_idle_between_bursts(pieces, number, autograd)
    result = concat([pieces.replaced(burst=number).take(rest), before, after])
    return result, _locate(result, main_thread)


def _autograd_threads(events: RankEvents, main_thread: int) -> np.ndarray:
    """Threads other than the main one that run autograd nodes."""
    names = events.table.events["name"]
    engine = by_category(names, lambda n: n.startswith("autograd::engine::") or n.endswith("Backward0"), bool)
    return np.setdiff1d(np.unique(events.thread[engine & (events.kind == EventKind.CPU_OP)]), [main_thread])


def _containing(pieces: Pieces, gaps: np.ndarray, worker: np.ndarray) -> np.ndarray:
    """[num_worker] the gap that contains each worker piece entirely; -1 none."""
    slot = np.searchsorted(pieces.begin_ns[gaps], pieces.begin_ns[worker], side="right") - 1
    gap = gaps[np.maximum(slot, 0)]
    contained = (slot >= 0) & (pieces.begin_ns[gap] <= pieces.begin_ns[worker])
    return np.where(contained & (pieces.end_ns[worker] <= pieces.end_ns[gap]), gap, -1)


def _extent(pieces: Pieces, inside: np.ndarray, gap: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per gap with a burst: (gap, first begin, last end)."""
    order = np.argsort(gap, kind="stable")
    split, where = np.unique(gap[order], return_index=True)
    first = np.minimum.reduceat(pieces.begin_ns[inside[order]], where)
    last = np.maximum.reduceat(pieces.end_ns[inside[order]], where)
    return split, first, last


def _idle_between_bursts(pieces: Pieces, number: np.ndarray, autograd: np.ndarray) -> np.ndarray:
    """[num_pieces] bool: T1 of an autograd thread whose next piece opens a burst."""
    idle = np.isin(pieces.thread, autograd) & (pieces.segment == Segment.T1)
    following = np.r_[number[1:], -1]
    previous = np.r_[-1, number[:-1]]
    return idle & (following >= 0) & (following != previous)


def _locate(pieces: Pieces, main_thread: int) -> Bursts:
    """Positions of forks, joins, first and last pieces, one row per (burst, thread)."""
    on_main = np.flatnonzero((pieces.burst >= 0) & (pieces.thread == main_thread))
    fork_of = dict(zip(pieces.burst[on_main[::-1]].tolist(), on_main[::-1].tolist(), strict=True))
    join_of = dict(zip(pieces.burst[on_main].tolist(), on_main.tolist(), strict=True))
    member = np.flatnonzero((pieces.burst >= 0) & (pieces.thread != main_thread))
    key = np.stack([pieces.burst[member], pieces.thread[member]])  # [2, num_member]
    order = np.lexsort((member, key[1], key[0]))
    changed = np.r_[True, (key[:, order][:, 1:] != key[:, order][:, :-1]).any(axis=0)]
    starts = np.flatnonzero(changed)
    stops = np.r_[starts[1:], len(order)] - 1
    burst = pieces.burst[member[order[starts]]].tolist()
    return Bursts(
        fork=np.array([fork_of[b] for b in burst], np.int64), join=np.array([join_of[b] for b in burst], np.int64),
        first=member[order[starts]], last=member[order[stops]],
    )  # fmt: skip
