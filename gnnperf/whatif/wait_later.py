"""Collectives that are waited for where they are issued are waited for where their result is needed.

before   |issue|T1 ·waits·| work |T1| takes the result
after    |issue|T1| work |T1 ·waits·| takes the result        the transfer runs next to the work

The reverse of `Block`. Who needs a result comes from `feeds` edges, else by the first call after it that takes a tensor
of its shape (`consumers`); `until` says a place of the step in their stead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Phase, Relation, Segment, require
from gnnperf.generate import Shape, parse, tensors
from gnnperf.graph import ExecutionGraph, lane_keys
from gnnperf.whatif.blocking import CONTENTION, exits, host_waits, issuers, waiting
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.places import Place, gap_at
from gnnperf.whatif.units import host_units

# Who takes what a call makes: given by `feeds` edges where there are any, else by shapes.
#
# [T1|all_to_all -> [8,4]]-[T1|linear [8,5]]-[T1|view [8,4]]      no edge: the next call with an input [8,4] takes it
#
# A shape can be taken for a tensor's that it is not; the first call after it is the earliest that may need it.

ALLOCATES = ("empty_like", "zeros_like", "ones_like", "new_empty", "new_zeros", "empty_strided", "rand_like")
Takers = dict[Shape, np.ndarray]


def takers(nodes: pd.DataFrame, chosen: np.ndarray) -> Takers:
    """Shape -> [n] nodes among `chosen` [num_nodes] bool with such an input, ascending; what only allocates aside."""
    known = np.flatnonzero(chosen & nodes["input_dims"].notna().to_numpy())
    dims = nodes["input_dims"].astype(object).to_numpy()[known]
    names = nodes["op_name"].astype(str).to_numpy()[known]
    results: dict[Shape, list[int]] = {}
    for node, text, name in zip(known.tolist(), dims, names, strict=True):
        if name.rpartition("::")[2] not in ALLOCATES:
            for shape in {shape for argument in parse(str(text)) for shape in tensors(argument)}:
                results.setdefault(shape, []).append(node)
    return {shape: np.array(places) for shape, places in results.items()}


def first_after(results: Takers, shape: Shape, node: int) -> int:
    """The first node after `node` that takes such a shape; -1 none."""
    places = results.get(shape, np.zeros(0, dtype=np.int64))
    at = int(np.searchsorted(places, node, side="right"))
    return int(places[at]) if at < len(places) else -1


def fed_by(graph: ExecutionGraph) -> dict[int, np.ndarray]:
    """Node -> [n] nodes that its tensors feed, ascending.

    Edges from forward to backward are left out: every trace has them, and they do not say who takes a result next.
    """
    phase = graph.nodes["phase"].astype(str).to_numpy()
    feeds = graph.edges[(graph.edges["relation"] == Relation.FEEDS).to_numpy()]
    src, dst = feeds["src"].to_numpy(), feeds["dst"].to_numpy()
    given = (phase[src] != Phase.FORWARD) | (phase[dst] != Phase.BACKWARD)
    src, dst = src[given], dst[given]
    return {node: np.unique(dst[src == node]) for node in np.unique(src).tolist()}


BY_SHAPE = ("who takes the results of {} parts: no tensor is followed (no feeds edges); the first call after each that "
            "takes a tensor of its shape was taken for it")  # fmt: skip
BY_USER = "whether results are needed earlier than at {}: it was told"
NOBODY = "who takes the results of {} of {} parts: they are waited for where they were"
STORED = "what memory the messages hold until they are waited for"


@dataclass(frozen=True)
class WaitLater:
    """Collectives are waited for where they are needed.

    Attributes:
        collective: which kind (all_reduce, all_to_all, ...); None all.
        phase: issued in forward, backward or optimizer; None any.
        until: a place (start, backward, optimizer) where results are needed at the earliest; None: it is looked for.
    """

    collective: str | None = None
    phase: str | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown place."""
        require(self.until in (None, *Place), "until of an overlap", self.until, ", ".join(Place))

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Move the waits; never to an earlier place than where they are.

        Raises:
            InputError: the graph has no such collective, or no part of one can be waited for later.
        """
        leaves = exits(graph, self.collective, self.phase)
        issued_by = issuers(graph, leaves)
        waits_at, how = self._needed(graph, issued_by, leaves)
        known = (waits_at >= 0) & ~_waited_for_later(graph, leaves, waits_at)
        if not known.any():
            what = f"nobody takes a result of {self.collective or 'a collective'}"
            raise InputError(what, where=f"graph {graph.name!r}", remedy="say where it is needed (until=optimizer)")
        unknown: tuple[str, ...] = (CONTENTION, STORED, *how)
        if not known.all():
            unknown += (NOBODY.format(int((~known).sum()), len(known)),)
        return waiting(graph, leaves[known], waits_at[known], unknown)

    def _needed(
        self, graph: ExecutionGraph, issued_by: np.ndarray, leaves: np.ndarray
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """[n] the gap before the call that needs each result (-1 no one); and how it was given."""
        if self.until is not None:
            return _at_place(graph, issued_by, Place(self.until)), (BY_USER.format(self.until),)
        fed, gaps = fed_by(graph), _gap_of(graph)
        lane = lane_keys(graph.nodes)
        calls = {key: takers(graph.nodes, _calls(graph, lane == key)) for key in np.unique(lane[issued_by]).tolist()}
        result, by_shape = np.full(len(issued_by), -1, dtype=np.int64), 0
        for place, (issuer, leaf) in enumerate(zip(issued_by.tolist(), leaves.tolist(), strict=True)):
            if issuer < 0:
                continue
            ends = [int(fed[node].min()) for node in (issuer, leaf - 1, leaf) if node in fed]
            taker = min(ends) if ends else _by_shape(graph, calls[lane[issuer]], issuer)
            by_shape += not ends and taker >= 0
            result[place] = gaps[taker] if taker >= 0 else -1
        return result, (BY_SHAPE.format(by_shape),) if by_shape else ()


def _by_shape(graph: ExecutionGraph, calls: Takers, issuer: int) -> int:
    """The first call of the issuer's thread and step after it that takes the result's shape; -1 none."""
    nodes = graph.nodes
    shape = _result(nodes["input_dims"].astype(object).iloc[issuer])
    taker = -1 if shape is None else first_after(calls, shape, issuer)
    same_step = taker >= 0 and nodes["step"].iloc[taker] == nodes["step"].iloc[issuer]
    return taker if same_step else -1


def _result(dims: object) -> Shape | None:
    """The first tensor of a collective's call: the one that is written (c10d), or changed in place."""
    results = [shape for argument in parse(dims) for shape in tensors(argument)] if isinstance(dims, str) else []
    return results[0] if results else None


def _calls(graph: ExecutionGraph, of_lane: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: host nodes and synchronous ops of a thread, `of_lane` [num_nodes] bool; gaps aside."""
    nodes = graph.nodes
    on_host = nodes["node_type"].isin([str(NodeType.HOST), str(NodeType.COMPUTE)]) & (nodes["thread"] >= 0)
    return on_host.to_numpy() & of_lane & (nodes["segment"] != Segment.T1).to_numpy()


def _waited_for_later(graph: ExecutionGraph, leaves: np.ndarray, waits_at: np.ndarray) -> np.ndarray:
    """[n] bool: the thread already waits for the part at this place, or after it."""
    lane, edge = lane_keys(graph.nodes), host_waits(graph)
    now = np.full(graph.num_nodes, -1, dtype=np.int64)
    now[graph.edges["src"].to_numpy()[edge]] = graph.edges["dst"].to_numpy()[edge]
    at = now[leaves]
    return (at >= 0) & (lane[at] == lane[waits_at]) & (at >= waits_at)


def _gap_of(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] the first node of each node's unit: the gap before the call; itself off the host."""
    unit = host_units(graph)
    result = np.arange(graph.num_nodes)
    number, first = np.unique(unit, return_index=True)
    inside = unit >= 0
    result[inside] = first[np.searchsorted(number, unit[inside])]
    return result


def _at_place(graph: ExecutionGraph, issued_by: np.ndarray, place: Place) -> np.ndarray:
    """[n] the gap at the place of the issuer's rank and step, where it comes after the issuer; else -1."""
    nodes, lane = graph.nodes, lane_keys(graph.nodes)
    gaps = {rank: gap_at(graph, rank, place) for rank in graph.ranks}
    step = nodes["step"].to_numpy()
    result = np.full(len(issued_by), -1, dtype=np.int64)
    for at, issuer in enumerate(issued_by.tolist()):
        mine = gaps[int(nodes["rank"].iloc[issuer])] if issuer >= 0 else np.zeros(0, dtype=np.int64)
        later = mine[(step[mine] == step[issuer]) & ((lane[mine] != lane[issuer]) | (mine > issuer))]
        result[at] = later[0] if len(later) else -1
    return result
