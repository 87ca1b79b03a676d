"""A graph of which nothing was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.graph.execution_graph import ExecutionGraph

_TIMES = ("start_us", "latency_us", "blocked_us")
_PROFILER = ("opened_ops", "opened_ranges")  # what a profiler records costs time; here none ran


def unlabeled(graph: ExecutionGraph) -> ExecutionGraph:
    """The same nodes and edges; every time unknown, and no cost of a profiler."""
    nothing = np.full(len(graph.nodes), np.nan)
    none = np.zeros(len(graph.nodes), dtype=np.int32)
    nodes = graph.nodes.assign(**dict.fromkeys(_TIMES, nothing), **dict.fromkeys(_PROFILER, none))
    edges: pd.DataFrame = graph.edges.assign(lag_us=np.nan)
    unknown = tuple(float("nan") for _ in graph.ranks)
    steps = tuple(
        replace(s, period_us=None, makespan_us=float("nan"), rank_start_us=unknown, rank_completion_us=unknown)
        for s in graph.steps
    )
    return replace(graph, nodes=nodes, edges=edges, steps=steps).validate()
