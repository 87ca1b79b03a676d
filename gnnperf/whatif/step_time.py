"""Step times of a whole recorded window, edited or not, scheduled from its own latencies and gaps.

    C(0)        C(1)        C(2)
----|-----------|-----------|      unedited: exactly the recording
------|-------------|-------------|  edited: whatever slack there was is used up first
"""

from __future__ import annotations

import numpy as np

from gnnperf.core import WORK_TYPES, InputError
from gnnperf.graph import ExecutionGraph, take
from gnnperf.schedule import measured_latencies, schedule


def step_times_us(graph: ExecutionGraph) -> np.ndarray:
    """[num_steps] period of each step of the window; the first one counts from the earliest rank's start.

    Each rank begins its first step when it did. Steps follow each other through threads and streams, so that
    slack of one step may absorb what another one is late. What was never measured takes the median of its kind,
    where there is one.

    Raises:
        InputError: the graph has no whole step.
    """
    if not graph.steps:
        raise InputError("has no whole step", where=f"graph {graph.name!r}", remedy="record at least one whole step")
    inside = _whole_steps(graph)
    latency_us, lag_us = (np.nan_to_num(values) for values in measured_latencies(inside))
    end_us = schedule(inside, latency_us, lag_us, ready_us=_rank_offsets(inside)).end_us
    work = inside.nodes["node_type"].isin([str(t) for t in WORK_TYPES]).to_numpy()
    step = inside.nodes["step"].to_numpy()
    completion = np.array([end_us[work & (step == s.step)].max(initial=0.0) for s in graph.steps])  # [num_steps]
    return np.diff(np.maximum.accumulate(completion), prepend=0.0)


def _whole_steps(graph: ExecutionGraph) -> ExecutionGraph:
    """The graph without work outside its steps: a window may begin and end within one."""
    work = graph.nodes["node_type"].isin([str(t) for t in WORK_TYPES])
    outside = work & ~graph.nodes["step"].isin([s.step for s in graph.steps])
    if not outside.any():
        return graph
    nodes, edges = take(graph.nodes, graph.edges, ~outside.to_numpy())
    return ExecutionGraph(**{**graph.__dict__, "nodes": nodes, "edges": edges})


def _rank_offsets(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] when each rank began, after the earliest one; 0 for nodes of no rank."""
    first = graph.steps[0].rank_start_us
    start_of = {rank: start - min(first) for rank, start in zip(graph.ranks, first, strict=True)}
    return np.array([start_of.get(rank, 0.0) for rank in graph.nodes["rank"].tolist()])
