"""Device work that someone chose runs on a stream of its own; what nothing is known about keeps its order.

before   stream 0   |- a -|- b -|- c -|- d -|
after    stream 0   |- a -|- c -|- d -|          nodes = (b,)
         stream 1         |- b -|

Beyond what tensors tie (`other_stream`), a chosen node stays after the last work before it of which no tensor is
followed, and before the next such; and who waited for the stream waits for both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Relation, require
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, lane_keys
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.other_stream import followed, on_own_streams

WORK = (NodeType.COMPUTE, NodeType.MEMORY)


@dataclass(frozen=True)
class MoveNodesToStream:
    """Chosen device work leaves its stream.

    Attributes:
        nodes: node ids of the graph.
    """

    nodes: tuple[int, ...]

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Move them.

        Raises:
            InputError: one of them is no work on a stream, or no tensor of it is followed.
        """
        chosen = np.zeros(graph.num_nodes, dtype=bool)
        require(all(0 <= node < graph.num_nodes for node in self.nodes), "nodes to move", self.nodes,
                f"0 to {graph.num_nodes - 1}")  # fmt: skip
        chosen[list(self.nodes)] = True
        known = followed(graph) & graph.nodes["node_type"].isin(WORK).to_numpy()
        require(bool((chosen <= known).all()), "nodes to move", np.flatnonzero(chosen & ~known).tolist(),
                "work on a stream of which a tensor is followed in its phase")  # fmt: skip
        edited = on_own_streams(graph, chosen)
        more = [part for part in (_in_order(graph, chosen), _awaited(graph, chosen)) if len(part)]
        return replace(edited, graph=replace(edited.graph, edges=concat_tables([edited.graph.edges, *more])))


def is_unordered(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: on a stream, and no tensor tells what it needs or who needs it."""
    return (graph.nodes["stream"] >= 0).to_numpy() & ~followed(graph)


def _in_order(graph: ExecutionGraph, chosen: np.ndarray) -> pd.DataFrame:
    """Waits between a chosen node and the nearest nodes of its stream that nothing is known about."""
    lane, fixed = lane_keys(graph.nodes), is_unordered(graph)
    edges = EdgeList()
    for one in np.unique(lane[chosen]).tolist():
        nodes = np.flatnonzero(lane == one)
        moved, fences = nodes[chosen[nodes]], nodes[fixed[nodes]]
        place = np.searchsorted(fences, moved)
        before, after = place > 0, place < len(fences)
        edges.add(fences[place[before] - 1], moved[before], Relation.WAITS, "event")
        edges.add(moved[after], fences[place[after]], Relation.WAITS, "event")
    return edges.table()


def _awaited(graph: ExecutionGraph, chosen: np.ndarray) -> pd.DataFrame:
    """Who waits for a node of a stream that work leaves waits for the last before it on either stream."""
    lane, result = lane_keys(graph.nodes), graph.edges
    src, dst = result["src"].to_numpy(), result["dst"].to_numpy()
    waits = (result["relation"] == Relation.WAITS).to_numpy() & np.isin(lane[src], np.unique(lane[chosen]))
    waits &= lane[src] != lane[dst]
    edges = EdgeList()
    for one in np.unique(lane[src[waits]]).tolist():
        nodes, here = np.flatnonzero(lane == one), np.flatnonzero(waits & (lane[src] == one))
        for left in (True, False):
            side = nodes[chosen[nodes] == left]
            place = np.searchsorted(side, src[here], side="right")
            other = (place > 0) & (chosen[src[here]] != left)
            edges.add(side[place[other] - 1], dst[here][other], Relation.WAITS, "sync")
    return edges.table()
