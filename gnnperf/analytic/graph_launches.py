"""Graph launches: one call that starts many kernels costs a call and, per kernel, much less than a launch of its own.

latency of the call = call + kernels x per kernel        host |T4 cudaGraphLaunch|
                                                         stream     |--- 497 kernels ---|
"""

import re

import numpy as np

from gnnperf.analytic.constants import AnalyticConstants
from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import CallClass, ExecutionGraph, call_class

CALL, KERNEL = "call", "kernel"  # keys of AnalyticConstants.graph_launch_us
_FUSED = re.compile(r"\[(\d+) kernels\]$")  # how the graph names the work of a graph launch


def launched_kernels(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] kernels that each graph launch starts; 0 for all other nodes."""
    nodes, edges = graph.nodes, graph.edges
    names = nodes["event_name"].astype(object).where(nodes["event_name"].notna(), "")
    launches = (nodes["node_type"] == NodeType.HOST).to_numpy() & (nodes["segment"] == Segment.T4).to_numpy()
    kinds = [name for name in names[launches].unique() if call_class(name) is CallClass.GRAPH_LAUNCH]  # a few
    launches &= names.isin(kinds).to_numpy()
    if not launches.any():
        return np.zeros(len(nodes))
    started = edges[(edges["relation"] == Relation.LAUNCHES).to_numpy()]
    kernels = names.str.extract(_FUSED, expand=False).fillna(1).to_numpy(float)  # [num_nodes]
    src, dst = started["src"].to_numpy(), started["dst"].to_numpy()
    return np.where(launches, np.bincount(src, weights=kernels[dst], minlength=len(nodes)), 0.0)


def graph_launch_us(kernels: np.ndarray, constants: AnalyticConstants) -> np.ndarray:
    """[n] us of calls that start so many kernels."""
    return constants.graph_launch_us[CALL] + kernels * constants.graph_launch_us[KERNEL]
