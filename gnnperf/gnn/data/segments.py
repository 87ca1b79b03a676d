"""A graph in segments of time: each holds some nodes and all that their outputs depend on.

position in time   ----[ halo | inner nodes of one segment | halo ]------->    over all ranks

Nodes are ordered by the timed relations (topological_order), which runs along the lanes of all ranks at once; an inner
window of that order is joined by everything within `num_hops` messages of it. A network with so many layers of message
passing then gives inner nodes the outputs that it gives them in the whole graph. Only they carry a target. Training on
segments is Cao et al. 2023, "Learning large graph property prediction via graph segment training"; here labels belong
to nodes and segments overlap, so nothing of a segment need be remembered for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.data import HeteroData

from gnnperf.core import TIMED_RELATIONS, WORK_TYPES
from gnnperf.schedule import topological_order

WORK = tuple(map(str, WORK_TYPES))
TIMED = frozenset(map(str, TIMED_RELATIONS))
SMALLEST_WINDOW = 1 / 16  # of what a segment may hold: a larger halo (a hub) does not shrink with the window


@dataclass(frozen=True)
class GraphSegment:
    """A part of a graph that stands for itself.

    Attributes:
        data: inner nodes and halo with every edge type of the whole; targets of the halo are NaN.
        inner: work type -> [n] bool, which of its nodes are inner.
    """

    data: HeteroData
    inner: dict[str, torch.Tensor]


class SegmentedGraph:
    """A normalized graph that is cut on demand.

    Args:
        data: the whole graph.
        num_hops: layers of message passing that inner nodes must be right for.
    """

    def __init__(self, data: HeteroData, num_hops: int) -> None:
        self.data, self.num_hops = data, num_hops
        counts = [int(data[t].num_nodes or 0) for t in WORK]
        self.first = dict(zip(WORK, np.cumsum([0, *counts]).tolist(), strict=False))  # row of each type's first node
        self.num_nodes = sum(counts)
        self._sort_edges()

    def windows(self, max_nodes: int) -> list[np.ndarray]:
        """Windows of work nodes in order of time, [window] rows each; with its halo none holds more than `max_nodes`.

        A halo that is larger by itself (of a collective over very many ranks) is kept: the outputs would be others.
        """
        order = self._order()
        count = max(-(-2 * len(order) // max_nodes), 1)
        return [part for window in np.array_split(order, count) for part in self._fitting(window, max_nodes)]

    def cut(self, window: np.ndarray) -> GraphSegment:
        """[window] rows -> the segment around them; the order of nodes and of each node's messages is the graph's."""
        rows, edges = self._reached(window)
        place = np.full(self.num_nodes, -1, dtype=np.int64)
        inner = np.zeros(self.num_nodes, dtype=bool)
        inner[window] = True
        data, result = HeteroData(), {}
        for node_type in WORK:
            own = self.of_type(rows, node_type)
            place[own] = np.arange(len(own))
            self._add_nodes(data, node_type, own - self.first[node_type])
            result[node_type] = torch.from_numpy(inner[own])
            data[node_type].target = data[node_type].target.masked_fill(~result[node_type], torch.nan)
        self._add_edges(data, place, edges)
        return GraphSegment(data, result)

    def _sort_edges(self) -> None:
        """Edges by receiver."""
        kinds = list(self.data.edge_types)
        ends = [self._joint(t) for t in kinds]
        src, dst = (np.concatenate([e[i] for e in ends] or [np.zeros(0, np.int64)]) for i in (0, 1))  # [num_edges]
        kind = np.repeat(np.arange(len(kinds)), [e.shape[1] for e in ends])
        order = np.argsort(dst, kind="stable")
        self.kinds, self.src, self.dst, self.kind = kinds, src[order], dst[order], kind[order]
        self.starts = np.searchsorted(self.dst, np.arange(self.num_nodes + 1))  # [num_nodes + 1] first edge of a row

    def _joint(self, edge_type: tuple[str, str, str]) -> np.ndarray:
        """[2, num_edges of the type] rows of the ends."""
        shift = np.array([[self.first[edge_type[0]]], [self.first[edge_type[2]]]])
        joint: np.ndarray = self.data[edge_type].edge_index.numpy() + shift
        return joint

    def _order(self) -> np.ndarray:
        """[num_nodes] rows, none before what it waits for."""
        timed = np.isin(self.kind, [i for i, t in enumerate(self.kinds) if t[1] in TIMED])
        order, _, _ = topological_order(self.num_nodes, self.src[timed], self.dst[timed])
        assert len(order) == self.num_nodes, "the schedule refuses cycles before any graph comes here"
        return order

    def of_type(self, rows: np.ndarray, node_type: str) -> np.ndarray:
        """[k] those rows that are nodes of a type, in their order."""
        first = self.first[node_type]
        own: np.ndarray = rows[(rows >= first) & (rows < first + int(self.data[node_type].num_nodes or 0))]
        return own

    def _fitting(self, window: np.ndarray, max_nodes: int) -> Iterator[np.ndarray]:
        if len(window) <= max(SMALLEST_WINDOW * max_nodes, 1) or len(self._reached(window)[0]) <= max_nodes:
            yield window
            return
        for half in np.array_split(window, 2):
            yield from self._fitting(half, max_nodes)

    def _reached(self, window: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sorted rows within `num_hops` messages of the window, and the edges along which these messages go."""
        known = np.zeros(self.num_nodes, dtype=bool)
        known[window] = True
        frontier, edges = window, [np.zeros(0, dtype=np.int64)]
        for _ in range(self.num_hops):
            edges.append(self._into(frontier))
            senders = self.src[edges[-1]]
            frontier = np.unique(senders[~known[senders]])
            known[frontier] = True
        return np.flatnonzero(known), np.sort(np.concatenate(edges))

    def _into(self, rows: np.ndarray) -> np.ndarray:
        """[k] places in the sorted edges of all edges into these rows."""
        first, count = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        before = np.cumsum(count) - count  # [len(rows)]
        return np.arange(int(count.sum())) + np.repeat(first - before, count)

    def _add_nodes(self, data: HeteroData, node_type: str, local: np.ndarray) -> None:
        """The values of these nodes, [n] places within their type."""
        chosen, whole = torch.from_numpy(local), self.data[node_type]
        for name, values in whole.items():
            data[node_type][name] = values[chosen] if isinstance(values, torch.Tensor) else len(local)  # num_nodes

    def _add_edges(self, data: HeteroData, place: np.ndarray, edges: np.ndarray) -> None:
        """Edges by type over the segment's own places; types without any are there with none."""
        ends = torch.from_numpy(np.stack([place[self.src[edges]], place[self.dst[edges]]]))  # [2, k]
        kind = self.kind[edges]
        for edge_type in self.data.edge_types:
            data[edge_type].edge_index = torch.zeros(2, 0, dtype=torch.int64)
        for number, edge_type in enumerate(self.kinds):
            data[edge_type].edge_index = ends[:, torch.from_numpy(np.flatnonzero(kind == number))]
