"""Device work of one rank: kernels, copies, collectives' kernels, and whole graph launches.

A graph launch is one work per stream, unless its capture was recorded: then every kernel is a work, of its op.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import EventKind, Link
from gnnperf.graph.calls import CallClass
from gnnperf.graph.captures import captured_ops
from gnnperf.graph.event_columns import RankEvents
from gnnperf.graph.host import outer_calls


@dataclass(frozen=True)
class Works:
    """Device work in order of start; all [num_works].

    Attributes:
        event: event id (of the first kernel, for a graph launch).
        call: event id of the launching runtime call; -1 launched before the window or unknown.
        op: event id of the CPU op; -1 none.
        recorded_op: event id of the op that tells its sizes: `op`, or that of the capture pass (graph.captures).
        begin_ns, end_ns: extent.
        stream: ordinal of the stream by first use, unique over the devices of the rank; device: as in the file.
        is_copy, is_comm: bool.
        num_kernels: 1, or the number of kernels under a graph launch.
        ordinal, num_siblings: position among the kernels (the copies, the collectives) of one op call.
        before_window: bool, launched before the profiler's window.
    """

    event: np.ndarray
    call: np.ndarray
    op: np.ndarray
    recorded_op: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray
    stream: np.ndarray
    device: np.ndarray
    is_copy: np.ndarray
    is_comm: np.ndarray
    num_kernels: np.ndarray
    ordinal: np.ndarray
    num_siblings: np.ndarray
    before_window: np.ndarray

    def __len__(self) -> int:
        return len(self.event)


def device_works(events: RankEvents) -> Works:
    """Device work of a rank, graph launches fused."""
    launch, stream = _launching_calls(events), stream_lanes(events)
    index = np.flatnonzero(events.is_device)
    index = index[np.lexsort((events.end_ns[index], events.start_ns[index]))]
    captured = captured_ops(events, index, launch[index], stream[index])  # [len(index)]
    apart = np.isin(launch[index], launch[index[captured >= 0]])
    first, num_kernels, group_end = _fuse_graph_launches(events, index, launch, stream, apart)
    group = index[first]
    call, op = launch[group], events.column("op_event")[group]
    recorded = np.where(apart[first], captured[first], op)
    is_copy = np.isin(events.kind[group], [EventKind.MEMCPY, EventKind.MEMSET])
    collective = events.column("collective")[group]
    is_comm = np.array([c is not None for c in collective], dtype=bool) & ~is_copy & (num_kernels == 1)
    owner = np.where(apart[first], _owners_in_replays(events, recorded, call), np.where(op >= 0, op, call))
    # A memset before a split GEMM is no sibling of its kernels: they share the op's work, it moves its own bytes.
    family = np.where(owner >= 0, owner * 3 + np.select([is_copy, is_comm], [1, 2], 0), -1)
    ordinal, siblings = _siblings(family, events.start_ns[group])
    before = events.column("link")[group] == Link.BEFORE_WINDOW
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


def _owners_in_replays(events: RankEvents, recorded: np.ndarray, call: np.ndarray) -> np.ndarray:
    """[n] one number per captured op and replay: kernels of one replay are no siblings of another's."""
    pairs = np.unique(np.stack([recorded, call]), axis=1, return_inverse=True)[1].reshape(-1)
    return len(events.calls) + pairs


def _launching_calls(events: RankEvents) -> np.ndarray:
    """[num_events] the T4 call that launched each device event; a driver call inside a runtime call is part of it."""
    launch = events.column("launch_event")
    return np.where(launch >= 0, outer_calls(events)[launch], -1)


def stream_lanes(events: RankEvents) -> np.ndarray:
    """[num_events] one number per stream of one device: two devices may both have a stream 7."""
    _, stream = np.unique(events.column("stream"), return_inverse=True)
    return events.column("device").astype(np.int64) * (stream.max(initial=0) + 1) + stream


def _first_use(lane: np.ndarray) -> np.ndarray:
    """[n] ordinals of lanes by first use."""
    _, first, inverse = np.unique(lane, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


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
