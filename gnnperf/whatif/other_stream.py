"""Calls of an op run on a stream of their own, as far as nothing orders them.

before   stream 0   |- gemm -|- copy -|- gemm -|
after    stream 0   |- gemm -|- gemm -|            gemms no longer wait for the copy
         stream 1   |- copy -|                     what takes its result does: an event, as program order had it

Only `feeds` edges tell what must wait; a kernel of which none tells anything stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Relation
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, consecutive, lane_keys
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.graph_rewrite import next_retained

SHARED = "how much slower both streams run while they share the device: only transfers beside kernels are told to"
EVENTS = ("what recording and waiting for events costs the host, and which calls of the host now wait for one stream "
          "only: no call is added or changed")  # fmt: skip
NO_FEEDS = (
    "what {} of {} kernels depend on: no tensor of theirs is followed (no feeds edges); they stay on their stream"
)
REUSED = "whether memory is used again before a kernel on another stream has read it"


@dataclass(frozen=True)
class MoveToStream:
    """Device work of an op's calls leaves its stream.

    Attributes:
        op: name of the outermost op, or a kind of family (copy, elementwise, ...).
        phase: forward, backward, optimizer; None any.
        rank: None all.
    """

    op: str
    phase: str | None = None
    rank: int | None = None

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Move them; producers and consumers are joined by events.

        Raises:
            InputError: no such work on a stream, or no tensor of it is followed.
        """
        named = self._named(graph)
        moved = named & followed(graph)
        if not moved.any():
            raise InputError(f"{int(named.sum())} kernels of {self.op!r}, but no tensor of theirs is followed",
                             where=f"graph {graph.name!r}", allowed="a graph with feeds edges: an execution trace "
                             "beside the Kineto trace")  # fmt: skip
        edited = on_own_streams(graph, moved)
        if moved.sum() == named.sum():
            return edited
        left = NO_FEEDS.format(int((named & ~moved).sum()), int(named.sum()))
        return replace(edited, unknown=(*edited.unknown, left))

    def _named(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] bool: device work of such calls on a stream.

        Raises:
            InputError: there is none.
        """
        nodes = graph.nodes
        works = nodes["node_type"].isin([str(NodeType.COMPUTE), str(NodeType.MEMORY)]) & nodes["step"].ge(0)
        works &= nodes["stream"] >= 0
        chosen = works & ((nodes["op_name"] == self.op) | (nodes["family"] == self.op))
        if self.phase is not None:
            chosen &= nodes["phase"] == self.phase
        if self.rank is not None:
            chosen &= nodes["rank"] == self.rank
        if not chosen.any():
            names = nodes.loc[works, "op_name"].astype(str).value_counts().index[:8]
            raise InputError(f"no work of {self.op!r} on a stream", where=f"graph {graph.name!r}",
                             allowed=", ".join(map(str, names)) or "a program that runs on a GPU")  # fmt: skip
        return chosen.to_numpy()


def on_own_streams(graph: ExecutionGraph, moved: np.ndarray) -> Edited:
    """Device work leaves its stream; events keep the order of what tensors tie.

    Args:
        graph: a whole window or one step.
        moved: [num_nodes] bool: device work on streams.
    """
    links = dependencies(graph)
    edges = concat_tables([part for part in (_apart(graph, moved), _events(moved, links)) if len(part)])
    nodes = graph.nodes.assign(stream=_streams(graph.nodes, moved))
    unknown = (SHARED, EVENTS, REUSED)
    return Edited(replace(graph, nodes=nodes, edges=edges), moved, np.arange(graph.num_nodes), unknown)


def followed(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: device work of which a tensor is known that is made or taken in its phase."""
    return np.isin(np.arange(graph.num_nodes), _within_phases(graph, dependencies(graph)))


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


def dependencies(graph: ExecutionGraph) -> np.ndarray:
    """[2, n] (producer, consumer) device work of one rank that a tensor ties, from `feeds` edges."""
    nodes = graph.nodes
    works = ((nodes["stream"] >= 0) & (nodes["rank"] >= 0)).to_numpy()
    feeds = graph.edges[(graph.edges["relation"] == Relation.FEEDS).to_numpy()]
    src, dst = feeds["src"].to_numpy(), feeds["dst"].to_numpy()
    return np.stack([src, dst])[:, works[src] & works[dst]]


def _within_phases(graph: ExecutionGraph, links: np.ndarray) -> np.ndarray:
    """[2, m] those of `links` [2, n] that stay in a phase: traces without tensors only tie forward to backward."""
    phase = graph.nodes["phase"].astype(str).to_numpy()
    return links[:, phase[links[0]] == phase[links[1]]]


def _events(moved: np.ndarray, links: np.ndarray) -> pd.DataFrame:
    """A wait for every tensor that is made on one stream and taken on another."""
    src, dst = links
    across = moved[src] != moved[dst]
    edges = EdgeList()
    edges.add(src[across], dst[across], Relation.WAITS, "event")
    return edges.table()


def _streams(nodes: pd.DataFrame, moved: np.ndarray) -> np.ndarray:
    """[num_nodes] stream ordinals: per rank one more for every stream that work leaves."""
    stream, rank = nodes["stream"].to_numpy(copy=True), nodes["rank"].to_numpy()
    for one in np.unique(rank[moved]):
        mine = rank == one
        free = int(stream[mine].max()) + 1
        for place, old in enumerate(np.unique(nodes["stream"].to_numpy()[moved & mine])):
            stream[moved & mine & (nodes["stream"].to_numpy() == old)] = free + place
    return stream
