"""Step times of a whole recorded window, edited or not, scheduled from its own latencies and gaps.

    C(0)        C(1)        C(2)
----|-----------|-----------|      unedited: exactly the recording
------|-------------|-------------|  edited: whatever slack there was is used up first
"""

from dataclasses import replace

import numpy as np

from gnnperf.core import WORK_TYPES, InputError
from gnnperf.graph import ExecutionGraph, take
from gnnperf.schedule import measured_latencies, schedule


def step_times_us(graph: ExecutionGraph) -> np.ndarray:
    """[num_steps] period of each step of the window; the first one counts from the earliest rank's start.

    Each rank begins its first step when it did. Steps follow each other through threads and streams, so that slack of
    one step may absorb what another one is late. Nodes without a measurement take the median of their class.

    Raises InputError: the graph has no whole step.
    """
    if not graph.steps:
        raise InputError("has no whole step", where=f"graph {graph.name!r}", remedy="record at least one whole step")
    work = graph.nodes["node_type"].isin([str(t) for t in WORK_TYPES]).to_numpy()
    outside = work & ~graph.nodes["step"].isin([s.step for s in graph.steps]).to_numpy()  # a window may begin in a step
    nodes, edges = take(graph.nodes, graph.edges, ~outside) if outside.any() else (graph.nodes, graph.edges)
    inside, work = replace(graph, nodes=nodes, edges=edges), work[~outside]
    latency_us, lag_us = (np.nan_to_num(values) for values in measured_latencies(inside))
    first = graph.steps[0].rank_start_us
    start_of = {rank: start - min(first) for rank, start in zip(graph.ranks, first, strict=True)}
    ready_us = np.array([start_of.get(rank, 0.0) for rank in nodes["rank"].tolist()])  # [num_nodes] 0: of no rank
    end_us = schedule(inside, latency_us, lag_us, ready_us=ready_us).end_us
    step = nodes["step"].to_numpy()
    completion = np.array([end_us[work & (step == s.step)].max(initial=0.0) for s in graph.steps])  # [num_steps]
    return np.diff(np.maximum.accumulate(completion), prepend=0.0)
