"""Threads of different ranks on one core: what work takes longer while the other rank's thread works too."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph, measured_end_us
from research.benchmarks._contention import MIN_CPU_US, PEERS, compared

FREE, BUSY = 0.05, 0.5  # share of an op's time next to another thread: at most for by itself, at least for next to
MIN_ALONE = 2


def extra_per_overlap(graph: ExecutionGraph) -> tuple[int, float, float]:
    """(ops, sum of extra time / sum of overlap, median latency / by itself) of ops next to no transfer.

    Fair sharing of one core gives 0.5: of the time together each thread gets one half. Peers are those of any rank.
    """
    assert graph.placement is not None, "recordings say where their ranks ran"
    nodes, latency = graph.nodes, graph.nodes["latency_us"].to_numpy()
    overlap = _with_other_ranks(graph)
    ops = (nodes["node_type"] == NodeType.COMPUTE).to_numpy() & (compared(graph, MIN_CPU_US).overlap_us == 0)
    keys = pd.DataFrame({c: nodes[c].astype(object).fillna("") for c in PEERS if c != "rank"})
    number = keys.groupby(list(keys.columns), sort=False).ngroup().to_numpy()
    peers = nodes["latency_us"].where(ops & (overlap < FREE * latency)).groupby(number).agg(["median", "count"])
    known = (peers["count"] >= MIN_ALONE) & (peers["median"] >= MIN_CPU_US)
    isolated = peers["median"].where(known).to_numpy()[number]
    judged = ops & (overlap > BUSY * latency) & ~np.isnan(isolated)
    if not judged.any():
        return 0, float("nan"), float("nan")
    extra_us = latency[judged] - isolated[judged]
    return (
        int(judged.sum()),
        extra_us.sum() / overlap[judged].sum(),
        float(np.median(latency[judged] / isolated[judged])),
    )


def _with_other_ranks(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] us of thread work next to thread work of the ranks on the same cores."""
    nodes, core_sets = graph.nodes, graph.placement.core_sets if graph.placement else ()
    start, end = nodes["start_us"].to_numpy(), measured_end_us(nodes)
    on_thread = (nodes["thread"] >= 0).to_numpy() & ~np.isnan(end)
    rank, overlap = nodes["rank"].to_numpy(), np.zeros(len(nodes))
    for one in graph.ranks:
        mine = np.flatnonzero(on_thread & (rank == one))
        for other in graph.ranks:
            if other != one and core_sets and set(core_sets[one]) & set(core_sets[other]):
                theirs = on_thread & (rank == other)
                busy = _BusyUntil(start[theirs], end[theirs])
                overlap[mine] += busy(end[mine]) - busy(start[mine])
    return overlap


class _BusyUntil:
    """Moment -> us within the intervals before it."""

    def __init__(self, start_us: np.ndarray, end_us: np.ndarray) -> None:
        order = np.argsort(start_us, kind="stable")
        first, last = start_us[order], np.maximum.accumulate(end_us[order])
        opens = np.r_[True, first[1:] > last[:-1]]
        self.begin = first[opens]
        self.end = last[np.r_[opens[1:], True]]
        self.before = np.r_[0.0, np.cumsum(self.end - self.begin)]

    def __call__(self, moment_us: np.ndarray) -> np.ndarray:
        slot = np.searchsorted(self.begin, moment_us, side="right") - 1
        inside = np.minimum(moment_us, self.end[np.maximum(slot, 0)]) - self.begin[np.maximum(slot, 0)]
        return np.where(slot >= 0, self.before[np.maximum(slot, 0)] + np.maximum(inside, 0.0), 0.0)
