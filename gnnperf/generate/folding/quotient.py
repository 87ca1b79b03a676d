"""The graph with one rank per class: the others' nodes go, and what they met is met by those that stand for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.generate.folding.classes import Colors
from gnnperf.generate.folding.structure import SHARED, Structure
from gnnperf.graph import ExecutionGraph, StepLabel


def stand_ins(structure: Structure, colors: Colors) -> np.ndarray:
    """[num_nodes] the node that stands for each one: of the first rank of its class, of the first like transfer."""
    s = structure
    _, first = np.unique(colors.rank, return_index=True)  # [num_classes] the first rank of each
    owned, shared = s.owner >= 0, s.owner == SHARED
    found = np.arange(len(s.owner))
    begin = np.full(s.num_ranks, -1, dtype=np.int64)
    by_rank = np.argsort(s.owner[owned], kind="stable")
    nodes = np.flatnonzero(owned)[by_rank]  # by rank, in order
    ranks, start = np.unique(s.owner[nodes], return_index=True)
    begin[ranks] = start
    found[owned] = nodes[begin[first[colors.rank[s.owner[owned]]]] + s.place[owned]]
    kept = _met_by(s, np.isin(np.arange(s.num_ranks), first))
    candidates = np.flatnonzero(shared & (kept | ~s.meets))
    alike, at = np.unique(colors.shared[candidates], return_index=True)
    transfers = np.flatnonzero(shared & s.meets)
    found[transfers] = candidates[at[np.searchsorted(alike, colors.shared[transfers])]]
    return found


def _met_by(s: Structure, ranks: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: shared nodes that some of `ranks` [num_ranks] bool, or that nobody, has an edge to or from."""
    met, anybody = np.zeros(len(s.owner), dtype=bool), np.zeros(len(s.owner), dtype=bool)
    for here, there in ((s.src, s.dst), (s.dst, s.src)):
        joins = (s.owner[here] == SHARED) & (s.owner[there] >= 0)
        anybody[here[joins]] = True
        met[here[joins][ranks[s.owner[there[joins]]]]] = True
    return met | ~anybody


def reduced(graph: ExecutionGraph, structure: Structure, stands_in: np.ndarray) -> tuple[ExecutionGraph, np.ndarray]:
    """The graph of stand-ins only, and [num_nodes] which of its nodes stands for each node of `graph`.

    An edge stays where its end does (the other end moves to its stand-in), edges into shared nodes where their begin
    does: what a kept node waits for is then complete.
    """
    keep = stands_in == np.arange(len(stands_in))
    new_id = np.cumsum(keep) - 1
    src, dst = (graph.edges[end].to_numpy() for end in ("src", "dst"))
    stays = np.where(structure.owner[dst] == SHARED, keep[src], keep[dst])
    nodes = graph.nodes[keep].reset_index(drop=True)
    nodes = nodes.assign(node_id=np.arange(len(nodes), dtype=np.int64))
    edges = graph.edges[stays].reset_index(drop=True)
    edges = edges.assign(src=new_id[stands_in[src[stays]]], dst=new_id[stands_in[dst[stays]]])
    carried = graph.carried
    if carried is not None:
        carried = new_id[stands_in[carried[:, keep[carried[1]]]]]
    return replace(graph, nodes=nodes, edges=edges, carried=carried), new_id[stands_in]


def of_ranks(graph: ExecutionGraph, chosen: np.ndarray) -> ExecutionGraph:
    """`graph` with the attributes of the ranks at positions `chosen` only; its nodes are theirs already."""
    names = tuple(graph.device_names[i] for i in chosen) if graph.device_names else ()
    steps = tuple(_label(step, chosen) for step in graph.steps)
    return replace(graph, ranks=tuple(graph.ranks[i] for i in chosen), device_names=names, steps=steps)


def _label(step: StepLabel, chosen: np.ndarray) -> StepLabel:
    return replace(
        step,
        rank_start_us=tuple(step.rank_start_us[i] for i in chosen),
        rank_completion_us=tuple(step.rank_completion_us[i] for i in chosen),
    )
