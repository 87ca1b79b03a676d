"""Device work of one rank: kernels, copies, collectives' kernels, and whole graph launches.

A graph launch is one work per stream, unless its capture was recorded: then every kernel is a work, of its op.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import EventKind, Link, schema
from gnnperf.graph.cost import fused_name
from gnnperf.graph.event_columns import CallClass, RankEvents, by_category, is_host_transfer
from gnnperf.graph.tables import combined

# Kernels of a CUDA graph, tied to the ops that put them there while the graph was captured.
#
#     capture   | BeginCapture | mm: launch | relu: launch | EndCapture |      no device work: the calls only note it
#     down
#     replay    | GraphLaunch |            device  |-- gemm --|- relu -|      no ops: the call starts what was noted
#
# A trace that holds both names no graph, so a replay is tied to a capture by order: as many launches, copies and
# memsets in the same order as the device work of the launch, all of it on one stream (several streams leave the order
# open), and no kernel that Inductor named under an op that it named otherwise. Captures that fit alike must have
# recorded the same ops with the same sizes; else nothing knows which was replayed, and none is tied.

_KERNEL, _COPY, _MEMSET = range(3)
_LAUNCHES = (int(CallClass.LAUNCH), int(CallClass.COPY_AND_WAIT))


def captured_ops(events: RankEvents, work: np.ndarray, call: np.ndarray, stream: np.ndarray) -> np.ndarray:
    """[n] event id of the op that was captured for each device event; -1: under no graph launch, or not tied.

    `work` [n] are device events in order of start, `call` and `stream` [n] their launching calls and stream numbers.
    """
    result = np.full(len(work), -1, dtype=np.int64)
    replayed = (call >= 0) & (events.calls[np.maximum(call, 0)] == CallClass.GRAPH_LAUNCH)
    if not replayed.any():
        return result
    captures = list(_captures(events))
    for one in np.unique(call[replayed]) if captures else ():
        places = np.flatnonzero(call == one)
        if len(np.unique(stream[places])) == 1:
            result[places] = _tied(events, work[places], captures)
    return result


def _captures(events: RankEvents) -> Iterator[np.ndarray]:
    """Per capture pass the calls that it noted down, in order: launches without device work, of any thread."""
    begins, ends = (np.flatnonzero(events.calls == c) for c in (CallClass.BEGIN_CAPTURE, CallClass.END_CAPTURE))
    notes = _noted(events)
    for begin in begins:
        later = ends[(events.start_ns[ends] >= events.end_ns[begin]) & (events.thread[ends] == events.thread[begin])]
        if len(later):
            end = later[np.argmin(events.start_ns[later])]
            inside = (events.start_ns[notes] >= events.end_ns[begin]) & (events.end_ns[notes] <= events.start_ns[end])
            yield notes[inside]


def _noted(events: RankEvents) -> np.ndarray:
    """Launching calls that started nothing, in order; a driver call inside a runtime call is part of it."""
    launched = events.column("launch_event")
    started = np.zeros(len(events.calls), dtype=bool)
    started[launched[launched >= 0]] = True
    launches = np.isin(events.calls, _LAUNCHES)
    within = (events.parent >= 0) & launches[events.parent]
    calls = np.flatnonzero(launches & ~started & ~within)
    result: np.ndarray = calls[np.argsort(events.start_ns[calls], kind="stable")]
    return result


def _tied(events: RankEvents, work: np.ndarray, captures: Sequence[np.ndarray]) -> np.ndarray:
    """[n] ops of the captures that fit the works of one launch; -1 if none does, or they do not agree."""
    fitting = [ops for ops in (_ops(events, calls) for calls in captures if _same_kinds(events, work, calls))
               if _named_alike(events, work, ops)]  # fmt: skip
    agree = len({_content(events, ops) for ops in fitting}) == 1
    return fitting[0] if agree else np.full(len(work), -1, dtype=np.int64)


def _same_kinds(events: RankEvents, work: np.ndarray, calls: np.ndarray) -> bool:
    kind, names = events.table.events["kind"].array[work], events.name[calls].tolist()
    of_work = np.select([kind == EventKind.MEMCPY, kind == EventKind.MEMSET], [_COPY, _MEMSET], _KERNEL)
    return of_work.tolist() == [_MEMSET if "emset" in name else _COPY if "emcpy" in name else _KERNEL for name in names]


def _ops(events: RankEvents, calls: np.ndarray) -> np.ndarray:
    """[n] the op around each call; -1 none."""
    parent = events.parent[calls]
    return np.where((parent >= 0) & events.is_op[parent], parent, -1)


def _named_alike(events: RankEvents, work: np.ndarray, ops: np.ndarray) -> bool:
    """Whether every kernel and op that Inductor named, both of them, have one name."""
    kernels, named = (map(fused_name, events.name[one[ops >= 0]].tolist()) for one in (work, ops))
    return all(kernel == op for kernel, op in zip(kernels, named, strict=True) if kernel and op)


def _content(events: RankEvents, ops: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Names and sizes of ops, in order."""
    frame = events.table.events
    codes = (schema.codes_of(frame[name])[ops] for name in ("name", "input_dims", "input_types"))
    return tuple(tuple(np.where(ops >= 0, code, -1).tolist()) for code in codes)


@dataclass(frozen=True)
class Works:
    """Device work in order of start; all [num_works]."""

    event: np.ndarray  # event id (of the first kernel, for a graph launch)
    call: np.ndarray  # event id of the launching runtime call; -1 launched before the window or unknown
    op: np.ndarray  # event id of the CPU op; -1 none
    recorded_op: np.ndarray  # event id of the op that shows its sizes: `op`, or that of the capture pass
    begin_ns: np.ndarray
    end_ns: np.ndarray
    # ordinal of the stream by first use, unique over the devices of the rank; device: as in the file
    stream: np.ndarray
    device: np.ndarray
    is_copy: np.ndarray  # bool
    is_comm: np.ndarray  # bool
    num_kernels: np.ndarray  # 1, or the number of kernels under a graph launch
    ordinal: np.ndarray  # position among the kernels (the copies, the collectives) of one op call
    num_siblings: np.ndarray  # how many these are
    before_window: np.ndarray  # bool, launched before the profiler's window

    def __len__(self) -> int:
        return len(self.event)


def device_works(events: RankEvents) -> Works:
    """Device work of a rank, graph launches fused."""
    launch, stream = events.column("launch_event"), stream_lanes(events)
    launch = np.where(launch >= 0, events.call[launch], -1)  # a driver call inside a runtime call is part of it
    index = np.flatnonzero(events.is_device)
    index = index[np.lexsort((events.end_ns[index], events.start_ns[index]))]
    captured = captured_ops(events, index, launch[index], stream[index])  # [len(index)]
    apart = np.isin(launch[index], launch[index[captured >= 0]])
    first, num_kernels, group_end = _fuse_graph_launches(events, index, launch, stream, apart)
    group = index[first]
    call, op = launch[group], events.column("op_event")[group]
    recorded = np.where(apart[first], captured[first], op)
    is_copy = events.is_kind(EventKind.MEMCPY, EventKind.MEMSET)[group]
    collective = schema.codes_of(events.table.events["collective"])[group]
    is_comm = (collective >= 0) & ~is_copy & (num_kernels == 1)
    owner = np.where(op >= 0, op, call)
    # One number per captured op and replay: kernels of one replay are no siblings of another's.
    replayed = apart[first]
    owner[replayed] = len(events.calls) + combined([recorded[replayed], call[replayed]])
    # A memset before a split GEMM is no sibling of its kernels: they share the op's work, it moves its own bytes.
    family = np.where(owner >= 0, owner * 3 + np.select([is_copy, is_comm], [1, 2], 0), -1)
    ordinal, siblings = _siblings(family, events.start_ns[group])
    before = events.column("link", group) == Link.BEFORE_WINDOW
    return Works(
        group, call, op, recorded, events.start_ns[group], group_end, _first_use(stream[group]),
        events.column("device")[group], is_copy, is_comm, num_kernels, ordinal, siblings, before,
    )  # fmt: skip


def _fuse_graph_launches(
    events: RankEvents, index: np.ndarray, launch: np.ndarray, stream: np.ndarray, apart: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(place of the first event, number of kernels, end) per work.

    The kernels of one graph launch on one stream are one work, but for those `apart` [len(index)] bool.
    """
    call = launch[index]
    graph_call = ~apart & (call >= 0) & (events.calls[np.maximum(call, 0)] == CallClass.GRAPH_LAUNCH)
    key = np.where(graph_call, call * 4096 + _first_use(stream[index]), -1 - np.arange(len(index)))
    _, first, inverse, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    end = np.full(len(first), np.iinfo(np.int64).min)
    np.maximum.at(end, inverse, events.end_ns[index])
    order = np.argsort(first)  # index is in order of start, so is the first event of each group
    return first[order], counts[order], end[order]


def stream_lanes(events: RankEvents) -> np.ndarray:
    """[num_events] one number per stream of one device: two devices may both have a stream 7."""
    stream, _ = pd.factorize(events.column("stream"), sort=True)
    return events.column("device").astype(np.int64) * (stream.max(initial=0) + 1) + stream


def _first_use(lane: np.ndarray) -> np.ndarray:
    """[n] ordinals of lanes by first use."""
    return pd.factorize(lane)[0].astype(np.int64)


def _siblings(owner: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position among, and number of, works with the same owner (-1 owns nothing)."""
    order = np.lexsort((start, owner))
    sorted_owner = owner[order]
    starts = np.flatnonzero(np.r_[True, sorted_owner[1:] != sorted_owner[:-1]]) if len(order) else order
    counts = np.diff(np.r_[starts, len(order)])
    ordinal, siblings = np.zeros(len(owner), np.int32), np.ones(len(owner), np.int32)
    ordinal[order] = np.arange(len(order)) - np.repeat(starts, counts)
    siblings[order] = np.repeat(counts, counts)
    owned = owner >= 0
    return np.where(owned, ordinal, 0).astype(np.int32), np.where(owned, siblings, 1).astype(np.int32)


# Collectives that run on host threads (gloo) as works, and the op that issued each.
#
# main    |c10d::alltoall_base_|                      a worker thread of the process group runs the collective
# worker        |------ gloo:all_to_all ----------|
# main    |c10d::recv_|                               a send or receive has no thread: its range begins as the call
#            |---- gloo:recv -----|                   returns, and ends when the call's thread has waited for it

POINT_TO_POINT = ("send", "recv")
ISSUED_AS = {"all_reduce": ("all_reduce", "reduce_scatter")}  # gloo's reduce-scatter reduces all of it


def host_comm_works(events: RankEvents) -> Works:
    """Collectives recorded as ranges of host threads, as works without a device, in order of start."""
    named = by_category(events.table.events["name"], is_host_transfer, bool)
    index = np.flatnonzero(named & events.is_kind(EventKind.ANNOTATION))
    n = len(index)
    zero, one, no = np.zeros(n, np.int64), np.ones(n, np.int64), np.zeros(n, bool)
    op, direct = _issuers(events, index), np.isin(events.column("collective", index), POINT_TO_POINT)
    # What is sent may arrive before the range begins: the call has sent it.
    begin = np.where(direct & (op >= 0), events.start_ns[op], events.start_ns[index])
    works = Works(
        index, np.full(n, -1), op, op, begin, events.end_ns[index], zero, zero.astype(np.int32), no, ~no, one,
        zero.astype(np.int32), one.astype(np.int32), no,
    )  # fmt: skip
    order = np.lexsort((works.end_ns, works.begin_ns))
    index, op, begin, end = index[order], op[order], begin[order], works.end_ns[order]
    return replace(works, event=index, op=op, recorded_op=op, begin_ns=begin, end_ns=end)


def transport_threads(events: RankEvents) -> np.ndarray:
    """Threads that run collectives and issue none. What they do is the collective, not work of the program."""
    names = events.table.events["name"]
    runs = by_category(names, is_host_transfer, bool) & ~np.isin(events.column("collective"), POINT_TO_POINT)
    issues = by_category(names, lambda n: n.startswith("c10d::"), bool)
    return np.setdiff1d(np.unique(events.thread[runs]), np.unique(events.thread[issues]))


def is_direct(events: RankEvents, works: Works) -> np.ndarray:
    """[num_works] bool: sends and receives."""
    return np.isin(events.column("collective", works.event), POINT_TO_POINT)


def _issuers(events: RankEvents, index: np.ndarray) -> np.ndarray:
    """[num_works] the c10d op that issued each range; -1 none."""
    c10d = by_category(events.table.events["name"], lambda n: n.startswith("c10d::"), bool)
    kind = events.column("collective")
    ops = np.flatnonzero(c10d & events.is_op & (kind != None))  # noqa: E711 (elementwise)
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

    Two worker threads that take their collectives at the same time may begin them in either order: the size shows.
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
