"""Kernels of a CUDA graph, tied to the ops that put them there while the graph was captured.

    capture   | BeginCapture | mm: launch | relu: launch | EndCapture |      no device work: the calls only note it down
    replay    | GraphLaunch |            device  |-- gemm --|- relu -|      no ops: the call starts what was noted

A trace that holds both names no graph, so a replay is tied to a capture by order: as many launches, copies and memsets
in the same order as the device work of the launch, all of it on one stream (several streams leave the order open), and
no kernel that Inductor named under an op that it named otherwise. Captures that fit alike must have recorded the same
ops with the same sizes; else nobody knows which was replayed, and none is tied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gnnperf.core import EventKind
from gnnperf.graph.calls import CallClass
from gnnperf.graph.cost import fused_name
from gnnperf.graph.event_columns import RankEvents

_KERNEL, _COPY, _MEMSET = range(3)
_LAUNCHES = (int(CallClass.LAUNCH), int(CallClass.COPY_AND_WAIT))


def captured_ops(events: RankEvents, work: np.ndarray, call: np.ndarray, stream: np.ndarray) -> np.ndarray:
    """[n] event id of the op that was captured for each device event; -1: under no graph launch, or not tied.

    Args:
        events: of the rank.
        work: [n] device events in order of start.
        call: [n] launching call of each; -1 unknown.
        stream: [n] number of its stream.
    """
    found = np.full(len(work), -1, dtype=np.int64)
    replayed = (call >= 0) & (events.calls[np.maximum(call, 0)] == CallClass.GRAPH_LAUNCH)
    if not replayed.any():
        return found
    captures = list(_captures(events))
    for one in np.unique(call[replayed]) if captures else ():
        places = np.flatnonzero(call == one)
        if len(np.unique(stream[places])) == 1:
            found[places] = _tied(events, work[places], captures)
    return found


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
    found: np.ndarray = calls[np.argsort(events.start_ns[calls], kind="stable")]
    return found


def _tied(events: RankEvents, work: np.ndarray, captures: Sequence[np.ndarray]) -> np.ndarray:
    """[n] ops of the captures that fit the works of one launch; -1 if none does, or they do not agree."""
    fitting = [ops for ops in (_ops(events, calls) for calls in captures if _same_kinds(events, work, calls))
               if _named_alike(events, work, ops)]  # fmt: skip
    agree = len({_content(events, ops) for ops in fitting}) == 1
    return fitting[0] if agree else np.full(len(work), -1, dtype=np.int64)


def _same_kinds(events: RankEvents, work: np.ndarray, calls: np.ndarray) -> bool:
    return np.array_equal(_kinds_of_work(events, work), _kinds_of_calls(events, calls))


def _ops(events: RankEvents, calls: np.ndarray) -> np.ndarray:
    """[n] the op around each call; -1 none."""
    parent = events.parent[calls]
    return np.where((parent >= 0) & (events.kind[parent] == EventKind.CPU_OP), parent, -1)


def _named_alike(events: RankEvents, work: np.ndarray, ops: np.ndarray) -> bool:
    """Whether every kernel and op that Inductor named, both of them, have one name."""
    kernels, named = (map(fused_name, events.name[one[ops >= 0]].tolist()) for one in (work, ops))
    return all(kernel == op for kernel, op in zip(kernels, named, strict=True) if kernel and op)


def _content(events: RankEvents, ops: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Names and sizes of ops, in order."""
    frame = events.table.events
    codes = (frame[name].cat.codes.to_numpy()[ops] for name in ("name", "input_dims", "input_types"))
    return tuple(tuple(np.where(ops >= 0, code, -1).tolist()) for code in codes)


def _kinds_of_work(events: RankEvents, work: np.ndarray) -> np.ndarray:
    kind = events.kind[work]
    return np.select([kind == EventKind.MEMCPY, kind == EventKind.MEMSET], [_COPY, _MEMSET], _KERNEL)


def _kinds_of_calls(events: RankEvents, calls: np.ndarray) -> np.ndarray:
    names = events.name[calls].tolist()
    return np.array([_MEMSET if "emset" in name else _COPY if "emcpy" in name else _KERNEL for name in names], int)
