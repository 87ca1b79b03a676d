"""The compiled passes over nodes and edges, each called once: numba keeps them in files for all processes."""

from dataclasses import replace

import numpy as np
from toys import two_rank_graph

from gnnperf import schedule as passes
from gnnperf.graph import TYPICAL_ON_GPU, Isolated, profiler_us
from gnnperf.hardware import Contention


def compile_passes() -> None:
    """Schedule a toy of two ranks, whose kernels share cores and whose transfers share a link."""
    graph = two_rank_graph()
    graph = replace(graph, nodes=graph.nodes.assign(start_us=0.0))
    latency_us, lag_us = np.nan_to_num(graph.nodes["latency_us"].to_numpy()), np.zeros(len(graph.edges))
    contention = Contention(ranks_per_node=2, ranks_per_inner_link=2, cores_per_node=1.0)
    passes.schedule_with_contention(
        graph, latency_us, lag_us, Isolated(np.ones(graph.num_nodes, dtype=bool), contention)
    )
    passes.isolated_us(graph, contention)
    profiler_us(graph, latency_us, lag_us, TYPICAL_ON_GPU)
    passes.common_subsequence(np.arange(2), np.arange(1, 3))
