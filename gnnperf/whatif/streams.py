"""Device work on a stream of its own, as far as tensors do not order it.

before   stream 0   |- gemm -|- copy -|- gemm -|
after    stream 0   |- gemm -|- gemm -|            gemms no longer wait for the copy
         stream 1   |- copy -|                     an event orders it before work that takes its result

Only `feeds` edges give the order; a kernel without any stays where it is.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import Relation, require
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, consecutive, lane_keys
from gnnperf.whatif.edit import ON_DEVICE, Edited, chosen, ends, is_type, refusal, rewritten
from gnnperf.whatif.units import next_retained

SHARED = "how much slower both streams run while they share the device: only transfers next to kernels slow each other"
EVENTS = ("what recording and waiting for events costs the host, and which calls of the host now wait for one stream "
          "only: no call is added or changed")  # fmt: skip
NO_FEEDS = (
    "what {} of {} kernels depend on: no tensor of theirs is followed (no feeds edges); they stay on their stream"
)
REUSED = "whether memory is used again before a kernel on another stream has read it"


@dataclass(frozen=True)
class MoveToStream:
    """Device work of an op's calls leaves its stream."""

    op: str  # name of the outermost op, or a kind of family (copy, elementwise, ...)
    phase: str | None = None  # forward, backward, optimizer; None any
    rank: int | None = None  # None all

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Move them; producers and consumers are joined by events."""
        nodes = graph.nodes
        on_stream = chosen(nodes, *ON_DEVICE) & (nodes["stream"] >= 0).to_numpy()
        named = on_stream & chosen(nodes, phase=self.phase, rank=self.rank)
        named &= ((nodes["op_name"] == self.op) | (nodes["family"] == self.op)).to_numpy()
        if not named.any():
            names = nodes.loc[on_stream, "op_name"].astype(str).value_counts().index[:8]
            raise refusal(graph, f"no work of {self.op!r} on a stream",
                          ", ".join(map(str, names)) or "a program that runs on a GPU")  # fmt: skip
        moved = named & followed(graph)
        if not moved.any():
            raise refusal(graph, f"{int(named.sum())} kernels of {self.op!r}, but no tensor of theirs is followed",
                          "a graph with feeds edges: an execution trace next to the Kineto trace")  # fmt: skip
        left = int((named & ~moved).sum())
        unknown = (NO_FEEDS.format(left, int(named.sum())),) if left else ()
        edited = _on_own_streams(graph, moved)
        return replace(edited, unknown=(*edited.unknown, *unknown))


@dataclass(frozen=True)
class MoveNodesToStream:
    """Given device work leaves its stream.

    Beyond the order of tensors, a node stays after the last work before it without a followed tensor, and before the
    next such; and who waited for the stream waits for both.
    """

    nodes: tuple[int, ...]  # node ids of the graph

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        require(all(0 <= node < graph.num_nodes for node in self.nodes), "nodes to move", self.nodes,
                f"0 to {graph.num_nodes - 1}")  # fmt: skip
        moved = np.isin(np.arange(graph.num_nodes), self.nodes)
        refused = np.flatnonzero(moved & ~(followed(graph) & is_type(graph, *ON_DEVICE))).tolist()
        require(not refused, "nodes to move", refused, "work on a stream of which a tensor is followed in its phase")
        edited = _on_own_streams(graph, moved)
        more = [part for part in (_in_order(graph, moved), _awaited(graph, moved)) if len(part)]
        return replace(edited, graph=replace(edited.graph, edges=concat_tables([edited.graph.edges, *more])))


def dependencies(graph: ExecutionGraph) -> np.ndarray:
    """[2, n] (producer, consumer) device work of one rank that a tensor ties, from `feeds` edges."""
    works = ((graph.nodes["stream"] >= 0) & (graph.nodes["rank"] >= 0)).to_numpy()
    feeds = ends(graph, Relation.FEEDS)
    return feeds[:, works[feeds[0]] & works[feeds[1]]]


def followed(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: device work of which a tensor is known that is made or taken in its phase.

    Traces without tensors only tie forward to backward.
    """
    links, phase = dependencies(graph), graph.nodes["phase"].astype(str).to_numpy()
    return np.isin(np.arange(graph.num_nodes), links[:, phase[links[0]] == phase[links[1]]])


def is_unordered(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: on a stream, and no tensor gives its order."""
    return (graph.nodes["stream"] >= 0).to_numpy() & ~followed(graph)


def _on_own_streams(graph: ExecutionGraph, moved: np.ndarray) -> Edited:
    """Device work `moved` [num_nodes] bool leaves its stream; events keep the order of what tensors tie."""
    src, dst = dependencies(graph)
    across = moved[src] != moved[dst]
    events = EdgeList()
    events.add(src[across], dst[across], Relation.WAITS, "event")
    edges = concat_tables([part for part in (_apart(graph, moved), events.table()) if len(part)])
    return rewritten(graph, moved, (SHARED, EVENTS, REUSED), edges=edges, stream=_streams(graph.nodes, moved))


def _apart(graph: ExecutionGraph, moved: np.ndarray) -> pd.DataFrame:
    """Edges: each stream closes up behind what leaves it; what leaves one stream follows its like."""
    lane, edges = lane_keys(graph.nodes), graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    follows = (edges["relation"] == Relation.FOLLOWS).to_numpy() & (lane[src] == lane[dst])
    retained = edges[~(follows & (moved[src] | moved[dst]))]
    heir = next_retained(lane, moved)
    closing = follows & ~moved[src] & moved[dst] & (heir[dst] >= 0)
    apart = EdgeList()
    apart.add(src[closing], heir[dst[closing]], Relation.FOLLOWS, "stream")
    one, other = consecutive(np.where(moved, lane, -1))
    apart.add(one, other, Relation.FOLLOWS, "stream")
    return concat_tables([part for part in (retained, apart.table()) if len(part)])


def _streams(nodes: pd.DataFrame, moved: np.ndarray) -> np.ndarray:
    """[num_nodes] stream ordinals: per rank one more for every stream that work leaves."""
    before, rank = nodes["stream"].to_numpy(), nodes["rank"].to_numpy()
    stream = before.copy()
    for one in np.unique(rank[moved]):
        mine = moved & (rank == one)
        free = int(before[rank == one].max()) + 1
        stream[mine] = free + np.unique(before[mine], return_inverse=True)[1]
    return stream


def _in_order(graph: ExecutionGraph, moved: np.ndarray) -> pd.DataFrame:
    """Waits between a moved node and the nearest nodes of its stream without a known order."""
    lane, fixed = lane_keys(graph.nodes), is_unordered(graph)
    edges = EdgeList()
    for one in np.unique(lane[moved]).tolist():
        nodes = np.flatnonzero(lane == one)
        leaving, fences = nodes[moved[nodes]], nodes[fixed[nodes]]
        place = np.searchsorted(fences, leaving)
        before, after = place > 0, place < len(fences)
        edges.add(fences[place[before] - 1], leaving[before], Relation.WAITS, "event")
        edges.add(leaving[after], fences[place[after]], Relation.WAITS, "event")
    return edges.table()


def _awaited(graph: ExecutionGraph, moved: np.ndarray) -> pd.DataFrame:
    """Who waits for a node of a stream that work leaves waits for the last before it on either stream."""
    lane, edges = lane_keys(graph.nodes), EdgeList()
    src, dst = ends(graph, Relation.WAITS)
    outward = np.isin(lane[src], np.unique(lane[moved])) & (lane[src] != lane[dst])
    for one in np.unique(lane[src[outward]]).tolist():
        nodes, here = np.flatnonzero(lane == one), np.flatnonzero(outward & (lane[src] == one))
        for left in (True, False):
            side = nodes[moved[nodes] == left]
            place = np.searchsorted(side, src[here], side="right")
            other = (place > 0) & (moved[src[here]] != left)
            edges.add(side[place[other] - 1], dst[here][other], Relation.WAITS, "sync")
    return edges.table()
