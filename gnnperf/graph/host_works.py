"""Collectives that run on host threads (gloo) as works, and the op that issued each.

main    |c10d::alltoall_base_|                      a worker thread of the process group runs the collective
worker        |------ gloo:all_to_all ----------|
main    |c10d::recv_|                               a send or receive has no thread: its range begins as the call
           |---- gloo:recv -----|                   returns, and ends when the call's thread has waited for it
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.core import EventKind
from gnnperf.graph.device import Works
from gnnperf.graph.event_columns import RankEvents, by_category, is_host_transfer

POINT_TO_POINT = ("send", "recv")
ISSUED_AS = {"all_reduce": ("all_reduce", "reduce_scatter")}  # gloo's reduce-scatter reduces all of it


def host_comm_works(events: RankEvents) -> Works:
    """Collectives recorded as ranges of host threads, as works without a device, in order of start."""
    named = by_category(events.table.events["name"], is_host_transfer, bool)
    index = np.flatnonzero(named & (events.kind == EventKind.ANNOTATION))
    n = len(index)
    zero, one, no = np.zeros(n, np.int64), np.ones(n, np.int64), np.zeros(n, bool)
    op, direct = _issuers(events, index), np.isin(events.column("collective")[index], POINT_TO_POINT)
    # What is sent may arrive before the range begins: the call has sent it.
    begin = np.where(direct & (op >= 0), events.start_ns[op], events.start_ns[index])
    works = Works(
        index, np.full(n, -1), op, op, begin, events.end_ns[index], zero, zero.astype(np.int32), no, ~no, one,
        zero.astype(np.int32), one.astype(np.int32), no,
    )  # fmt: skip
    order = np.lexsort((works.end_ns, works.begin_ns))
    return replace(
        works,
        event=index[order],
        op=op[order],
        recorded_op=op[order],
        begin_ns=begin[order],
        end_ns=works.end_ns[order],
    )


def transport_threads(events: RankEvents) -> np.ndarray:
    """Threads that run collectives and issue none. What they do is the collective, not work of the program."""
    names = events.table.events["name"]
    runs = by_category(names, is_host_transfer, bool) & ~np.isin(events.column("collective"), POINT_TO_POINT)
    issues = by_category(names, lambda n: n.startswith("c10d::"), bool)
    return np.setdiff1d(np.unique(events.thread[runs]), np.unique(events.thread[issues]))


def is_direct(events: RankEvents, works: Works) -> np.ndarray:
    """[num_works] bool: sends and receives."""
    return np.isin(events.column("collective")[works.event], POINT_TO_POINT)


def _issuers(events: RankEvents, index: np.ndarray) -> np.ndarray:
    """[num_works] the c10d op that issued each range; -1 none."""
    c10d = by_category(events.table.events["name"], lambda n: n.startswith("c10d::"), bool)
    kind = events.column("collective")
    ops = np.flatnonzero(c10d & (events.kind == EventKind.CPU_OP) & (kind != None))  # noqa: E711 (elementwise)
    result = np.full(len(index), -1, dtype=np.int64)
    for name in {k for k in kind[index].tolist() if k is not None}:
        mine = np.flatnonzero(kind[index] == name)
        theirs = ops[np.isin(kind[ops], ISSUED_AS.get(name, (name,)))]
        pair = _before if name in POINT_TO_POINT else _in_order
        result[mine] = pair(events, index[mine], theirs)
    early = (result >= 0) & (events.start_ns[result] > events.start_ns[index])
    return np.where(early, -1, result)


def _before(events: RankEvents, ranges: np.ndarray, ops: np.ndarray) -> np.ndarray:
    """[num_ranges] the op of the same thread that began last before each; -1 none."""
    result = np.full(len(ranges), -1, dtype=np.int64)
    for thread in np.unique(events.thread[ranges]).tolist():
        mine, theirs = np.flatnonzero(events.thread[ranges] == thread), ops[events.thread[ops] == thread]
        slot = np.searchsorted(events.start_ns[theirs], events.start_ns[ranges[mine]], side="right") - 1
        result[mine[slot >= 0]] = theirs[slot[slot >= 0]]
    return result


def _in_order(events: RankEvents, ranges: np.ndarray, ops: np.ndarray) -> np.ndarray:
    """[num_ranges] the op of each: same size, first come first served; -1 none.

    Two worker threads that take their collectives at the same time may begin them in either order: the size tells.
    """
    size = np.nan_to_num(events.column("in_elements"), nan=-1.0)
    result = np.full(len(ranges), -1, dtype=np.int64)
    stated = np.isin(size[ranges], size[ops]).all()  # else some state it otherwise: the kind must do
    for elements in np.unique(size[ranges]) if stated else [None]:
        works = np.arange(len(ranges)) if elements is None else np.flatnonzero(size[ranges] == elements)
        issuing = ops if elements is None else ops[size[ops] == elements]
        # Pair from the tail: the window may open between an issue and its start, never the other way round.
        n = min(len(works), len(issuing))
        if n:
            result[works[-n:]] = issuing[-n:]
    return result
