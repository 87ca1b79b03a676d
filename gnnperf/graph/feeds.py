"""Tensor dependencies: from an execution trace's tensor ids, else from forward/backward links."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import Evidence, Relation
from gnnperf.graph.rank_graph import RankGraph
from gnnperf.graph.tables import EdgeList


def feed_edges(ranks: list[RankGraph], offsets: list[int], nodes: pd.DataFrame) -> EdgeList:
    """`feeds` from the last node of the producing op to the first node of the consuming op."""
    edges = EdgeList()
    for rank, offset in zip(ranks, offsets, strict=False):
        producer, consumer = _op_pairs(rank)
        first, last = _op_nodes(rank)
        src, dst = last[producer], first[consumer]
        known = (src >= 0) & (dst >= 0) & (src != dst)
        pairs = np.unique(np.stack([src[known], dst[known]]), axis=1)
        edges.add(pairs[0] + offset, pairs[1] + offset, Relation.FEEDS, evidence=Evidence.ID)
    return edges


def _op_pairs(rank: RankGraph) -> tuple[np.ndarray, np.ndarray]:
    """(producer, consumer) event ids of CPU ops."""
    feeds = rank.events.table.feeds
    if len(feeds):
        return feeds["producer_event"].to_numpy(), feeds["consumer_event"].to_numpy()
    forward = rank.events.column("forward_event")
    backward = np.flatnonzero(forward >= 0)
    return forward[backward], backward


def _op_nodes(rank: RankGraph) -> tuple[np.ndarray, np.ndarray]:
    """[num_events] first and last node of each op: its device work if it has any, else its host pieces.

    An op inside a larger one shares the larger one's nodes; a scope takes its children's.
    """
    n = len(rank.events.start_ns)
    first, last = np.full(n, -1), np.full(n, -1)
    host = np.flatnonzero((rank.nodes["event_id"].to_numpy() >= 0) & (rank.nodes["thread"].to_numpy() >= 0))
    _spread(rank.nodes["event_id"].to_numpy()[host], host, host, first, last)
    owned = np.flatnonzero(rank.works.op >= 0)
    device_first, device_last = np.full(n, -1), np.full(n, -1)
    op = rank.works.op[owned]
    for _ in range(8):  # the op itself, then the ranges around it
        _spread(op, rank.first_node[owned], rank.last_node[owned], device_first, device_last)
        op = np.where(op >= 0, rank.events.parent[op], -1)
    outer = rank.events.op
    inherit = (first < 0) & (outer >= 0)
    first[inherit], last[inherit] = first[outer[inherit]], last[outer[inherit]]
    return np.where(device_first >= 0, device_first, first), np.where(device_last >= 0, device_last, last)


def _spread(owner: np.ndarray, begin: np.ndarray, end: np.ndarray, first: np.ndarray, last: np.ndarray) -> None:
    """Extend the node range of each owner (event id; -1 none)."""
    known = np.flatnonzero(owner >= 0)
    backwards = known[::-1]
    lower = first.copy()
    lower[owner[backwards]] = begin[backwards]
    first[:] = np.where(first < 0, lower, np.where(lower < 0, first, np.minimum(first, lower)))
    upper = last.copy()
    upper[owner[known]] = end[known]
    last[:] = np.maximum(last, upper)
