"""The compiled passes of the schedule, each called once: numba keeps them in files for all processes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from toys import two_rank_graph

from gnnperf import schedule as passes
from gnnperf.graph import Isolated
from gnnperf.hardware import Contention


def compile_passes() -> None:
    """Schedule a toy of two ranks, whose kernels and transfer overlap, in every way."""
    graph = two_rank_graph()
    graph = replace(graph, nodes=graph.nodes.assign(start_us=0.0))
    latency_us, lag_us = np.nan_to_num(graph.nodes["latency_us"].to_numpy()), np.zeros(len(graph.edges))
    contention = Contention(compute_slowdown=1.5, memory_slowdown=1.5, transfer_slowdown=1.5)
    isolated = Isolated(np.ones(graph.num_nodes, dtype=bool), contention)
    passes.schedule(graph, latency_us, lag_us, num_unrolled=2)
    passes.schedule_with_contention(graph, latency_us, lag_us, isolated)
    passes.isolated_us(graph, contention)
    passes.arrival_lags_us(graph, latency_us, lag_us, passes.Jitter(device=passes.Spread(rank_share=0.1)))
    passes.common_subsequence(np.arange(2), np.arange(1, 3))
    passes.step_visits(passes.constraints_of(graph, lag_us, 2), latency_us)
