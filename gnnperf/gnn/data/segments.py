"""A graph in segments of time: each holds some nodes and all that their outputs depend on.

position in time   ----[ halo | inner nodes of one segment | halo ]------->    over all ranks

Nodes are ordered by the timed relations (topological_order), which runs along the lanes of all ranks at once; an inner
window of that order is joined by everything within `num_hops` messages of it. A network with so many layers of message
passing then gives inner nodes the outputs that it gives them in the whole graph. Only they carry a target. Training on
segments is Cao et al. 2023, "Learning large graph property prediction via graph segment training"; here labels belong
to nodes and segments overlap, so nothing of a segment need be remembered for the others.
"""

from collections.abc import Iterator
from copy import copy

import numpy as np
import torch
from torch_geometric.data import HeteroData

from gnnperf.core import TIMED_RELATIONS, WORK_TYPES
from gnnperf.schedule import topological_order

# How far a segment sees beyond its own nodes in training. With fewer hops than layers, states at its rim are
# approximate; with as many, ranks that often talk make it nearly the whole graph.
SEGMENT_HOPS = 2
WORK = tuple(map(str, WORK_TYPES))
TIMED = frozenset(map(str, TIMED_RELATIONS))
SMALLEST_WINDOW = 1 / 16  # of what a segment may hold: a larger halo (a hub) does not shrink with the window


class SegmentedGraph:
    """A normalized graph that is cut on demand; inner nodes are right for `num_hops` layers of message passing."""

    def __init__(self, data: HeteroData, num_hops: int) -> None:
        self.data, self.num_hops = data, num_hops
        counts = [int(data[t].num_nodes or 0) for t in WORK]
        self.first = dict(zip(WORK, np.cumsum([0, *counts]).tolist(), strict=False))  # row of each type's first node
        self.num_nodes = sum(counts)
        self.edges = {  # edge type -> [2, num_edges] rows; types without edges are left out
            t: data[t].edge_index.numpy() + np.array([[self.first[t[0]]], [self.first[t[2]]]])
            for t in data.edge_types if data[t].edge_index.shape[1]
        }  # fmt: skip
        none = np.zeros((2, 0), np.int64)
        self.joint = np.concatenate([none, *self.edges.values()], axis=1)  # [2, num_edges] rows
        src, dst = np.concatenate([none, *(ends for t, ends in self.edges.items() if t[1] in TIMED)], axis=1)
        self.order, _, _ = topological_order(self.num_nodes, src, dst)  # [num_nodes] none before what it waits for
        assert len(self.order) == self.num_nodes, "the schedule refuses cycles before any graph comes here"

    def windows(self, max_nodes: int) -> list[np.ndarray]:
        """Windows of work nodes in order of time, [window] rows each; with its halo none holds more than `max_nodes`.

        A halo that is larger by itself (of a collective over very many ranks) is kept: the outputs would be others.
        """
        count = max(-(-2 * len(self.order) // max_nodes), 1)
        return [part for window in np.array_split(self.order, count) for part in self._fitting(window, max_nodes)]

    def cut(self, window: np.ndarray) -> tuple[HeteroData, dict[str, torch.Tensor]]:
        """[window] rows -> the segment around them; the order of nodes and of each node's messages is the graph's.

        It has every edge type of the whole; targets of the halo are NaN. With it, work type -> [n] bool, which of its
        nodes are inner.
        """
        hops = self._hops(window)
        rows = {t: self._of_type(np.flatnonzero(hops <= self.num_hops), t) for t in WORK}
        place = np.full(self.num_nodes, -1)  # within its type
        data = copy(self.data)
        for node_type, own in rows.items():
            place[own] = np.arange(len(own))
            chosen = torch.from_numpy(own - self.first[node_type])
            for name, values in self.data[node_type].items():
                data[node_type][name] = values[chosen] if isinstance(values, torch.Tensor) else len(own)  # num_nodes
        for edge_type, (src, dst) in self.edges.items():
            needed = hops[dst] < self.num_hops  # no inner node needs messages to the outermost ones
            data[edge_type].edge_index = torch.from_numpy(np.stack([place[src[needed]], place[dst[needed]]]))
        inner = {t: torch.from_numpy(hops[own] == 0) for t, own in rows.items()}
        for node_type in WORK:
            data[node_type].target = data[node_type].target.masked_fill(~inner[node_type], torch.nan)
        return data, inner

    def segment(self, window: np.ndarray) -> HeteroData:
        """The data of the segment around [window] rows."""
        return self.cut(window)[0]

    def _of_type(self, rows: np.ndarray, node_type: str) -> np.ndarray:
        first = self.first[node_type]
        own: np.ndarray = rows[(rows >= first) & (rows < first + int(self.data[node_type].num_nodes or 0))]
        return own

    def places(self, window: np.ndarray, node_type: str) -> np.ndarray:
        """[k] sorted places, within a type, of the window's nodes of that type."""
        return np.sort(self._of_type(window, node_type)) - self.first[node_type]

    def _fitting(self, window: np.ndarray, max_nodes: int) -> Iterator[np.ndarray]:
        reached = (self._hops(window) <= self.num_hops).sum()
        if reached <= max_nodes or len(window) <= max(SMALLEST_WINDOW * max_nodes, 1):
            yield window
            return
        for half in np.array_split(window, 2):
            yield from self._fitting(half, max_nodes)

    def _hops(self, window: np.ndarray) -> np.ndarray:
        """[num_nodes] messages that lie between a row and the window, up to num_hops; more where it is farther."""
        hops = np.full(self.num_nodes, self.num_hops + 1)
        hops[window] = 0
        src, dst = self.joint
        for near in range(self.num_hops):
            senders = src[hops[dst] == near]
            hops[senders] = np.minimum(hops[senders], near + 1)
        return hops
