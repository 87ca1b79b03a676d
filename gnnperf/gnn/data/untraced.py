"""A collective whose peers were not traced, told to the network like any other.

graph       comm(arrive) -> peer_wait -> collective -> comm(exit)
network     comm(arrive) ---------------> collective -> comm(exit)
                        '-> peer_wait

Wait and transfer cannot be told apart in such a trace, so that the schedule has a node for the wait. What the
collective takes from the last arrival on is the same whether somebody traced its peers, and so is what it should be
told from.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.core import Relation, Segment
from gnnperf.graph import ExecutionGraph


def joined_by_parts(graph: ExecutionGraph) -> ExecutionGraph:
    """The graph in which parts of a collective join it themselves; a wait of which no part is left joins nothing."""
    waits = (graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()  # [num_nodes]
    if not waits.any():
        return graph
    edges = graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    relation = edges["relation"]
    before = np.full(graph.num_nodes, -1, dtype=np.int64)  # the part that waits, by wait
    follows = (relation == Relation.FOLLOWS).to_numpy() & waits[dst]
    before[dst[follows]] = src[follows]
    joins = (relation == Relation.JOINS).to_numpy() & waits[src]
    moved = edges.assign(src=np.where(joins, before[src], src))
    return replace(graph, edges=moved[(moved["src"] >= 0).to_numpy()].reset_index(drop=True))
