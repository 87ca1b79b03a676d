"""Nodes that someone chose take a multiple of what is given of them: for changes that no op name or rank selects.

before   [copy 40][gemm 90][copy 40]
after    [copy 10][gemm 90][copy 40]       nodes = (0,), factors = (0.25,)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import require
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited, LatencyChange, no_change


@dataclass(frozen=True)
class ScaleNodes:
    """Each chosen node takes a multiple of its latency.

    Attributes:
        nodes: node ids of the graph.
        factors: one per node, 0 or more.
    """

    nodes: tuple[int, ...]
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse a node without a factor, a node twice and what is no factor."""
        require(len(self.nodes) == len(self.factors), "factors of nodes", len(self.factors), f"{len(self.nodes)}")
        require(len(set(self.nodes)) == len(self.nodes), "nodes to scale", self.nodes, "each node once")
        require(all(f >= 0 for f in self.factors), "factors of nodes", self.factors, "0 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Declare it.

        Raises:
            InputError: the graph has no such node.
        """
        at = np.array(self.nodes, dtype=np.int64)
        inside = not len(at) or (int(at.min()) >= 0 and int(at.max()) < graph.num_nodes)
        require(inside, "nodes to scale", self.nodes, f"0 to {graph.num_nodes - 1}")
        nothing, factor, touched = no_change(graph.num_nodes), np.ones(graph.num_nodes), np.zeros(graph.num_nodes, bool)
        factor[at], touched[at] = self.factors, True
        change = LatencyChange(factor, nothing.added_us, nothing.declared_us)
        return Edited(graph, touched, np.arange(graph.num_nodes), (), change)
