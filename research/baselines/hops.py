"""What the nodes one edge away say, as columns: message passing without weights, for learners that take a table.

Per relation and direction: how many neighbors, the op's word of one of them (on a lane there is only one: the op before
or after), the mean of their numbers and, where a node can have several, the maximum.
"""

from dataclasses import dataclass

import numpy as np
from torch_geometric.data import HeteroData

from gnnperf.core import NUM_TEXT_FEATURES, Relation
from gnnperf.gnn import FIELDS
from gnnperf.gnn.data.features import FORWARD_EDGE_TYPES
from gnnperf.gnn.data.prepare import PreparedData
from research.baselines.trees import WORK, Own, OwnColumns, Trees, joint_codes

_OP = FIELDS.index("op_name")


@dataclass(frozen=True)
class Side:
    """One relation seen from the nodes that receive."""

    relation: str  # the relation
    backward: bool  # whether messages run against the edges


SIDES = tuple(
    Side(str(r), backward)
    for r in Relation if r not in (Relation.RUNS_ON, Relation.CROSSES, Relation.CONNECTS)
    for backward in (False, True)
)  # fmt: skip


@dataclass(frozen=True)
class HopColumns:
    """A node's own columns and those of its neighbors."""

    own: OwnColumns  # the node's own
    # mean, maximum: per side of SIDES the senders' features that are averaged, and those whose maximum is taken: only
    # what differs within a training step, the rest states nothing that the node does not know, and not the hashed
    # names, which stand for words
    mean: tuple[np.ndarray, ...]
    maximum: tuple[np.ndarray, ...]

    @property
    def categorical(self) -> tuple[int, ...]:
        """The own ones and the neighbors' words, which come right after the own columns."""
        first = self.own.categorical[-1] + 1
        return (*self.own.categorical, *range(first, first + len(SIDES)))

    def matrix(self, data: HeteroData) -> np.ndarray:
        """[num_work, num_columns] float32: own columns, a word per side, then the numbers per side."""
        own = self.own.matrix(data)  # [num_work, num_own]
        parts = [own, words(data, self.own)]
        for side, mean, maximum in zip(SIDES, self.mean, self.maximum, strict=True):
            parts.append(aggregate(senders(data), edges(data, side), len(own), mean, maximum))
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class OneHop:
    """A node's own features and those of its neighbors."""

    def columns(self, data: PreparedData) -> HopColumns:
        """What varies in the training runs; a mean where there are neighbors, a maximum where there are several."""
        graphs = [step.data for step in data.steps["train"]]
        differ = np.any([(x != x[:1]).any(axis=0) for x in map(senders, graphs)], axis=0)  # [num_features] in some step
        varying, nothing = np.flatnonzero(differ[:-NUM_TEXT_FEATURES]), np.zeros(0, dtype=np.int64)
        most = [max(np.bincount(edges(g, side)[1]).max(initial=0) for g in graphs) for side in SIDES]
        mean = tuple(varying if m > 0 else nothing for m in most)
        maximum = tuple(varying if m > 1 else nothing for m in most)
        return HopColumns(Own().columns(data), mean, maximum)


def trees_with_hops() -> Trees:
    return Trees(OneHop())


def aggregate(
    sent: np.ndarray, ends: np.ndarray, num_receivers: int, mean: np.ndarray, maximum: np.ndarray
) -> np.ndarray:
    """[num_receivers, 1 + len(mean) + len(maximum)] float32: how many neighbors, their mean, their maximum; 0 without.

    `sent` is [num_senders, num_features], `ends` [2, num_edges] sender and receiver; `mean` and `maximum` are columns
    of `sent`.
    """
    by_receiver = ends[:, np.argsort(ends[1], kind="stable")]
    receivers, first, count = np.unique(by_receiver[1], return_index=True, return_counts=True)  # [r]
    result = np.zeros((num_receivers, 1 + len(mean) + len(maximum)), dtype=np.float32)
    if not len(receivers):
        return result
    values = sent[by_receiver[0]]  # [num_edges, num_features]
    result[receivers, 0] = count
    result[receivers, 1 : 1 + len(mean)] = np.add.reduceat(values[:, mean], first) / count[:, None]
    result[receivers, 1 + len(mean) :] = np.maximum.reduceat(values[:, maximum], first)
    return result


def edges(data: HeteroData, side: Side) -> np.ndarray:
    """[2, num_edges] sender, receiver of one side, in joint WORK order."""
    stops = np.cumsum([0, *(len(data[t].x) for t in WORK)])
    first = dict(zip(WORK, stops[:-1].tolist(), strict=True))
    result = [np.zeros((2, 0), dtype=np.int64)]
    for src, relation, dst in FORWARD_EDGE_TYPES:
        if relation != side.relation or (src, relation, dst) not in data.edge_types:
            continue
        ends = data[src, relation, dst].edge_index.numpy() + np.array([[first[src]], [first[dst]]])
        result.append(ends[::-1] if side.backward else ends)
    return np.concatenate(result, axis=1)


def senders(data: HeteroData) -> np.ndarray:
    """[num_work, num_features] float32."""
    return np.concatenate([data[t].x.numpy() for t in WORK])


def words(data: HeteroData, own: OwnColumns) -> np.ndarray:
    """[num_work, len(SIDES)] float32 the op of a neighbor; -1, which LightGBM reads as missing, without one."""
    ops = joint_codes(data, own.vocabulary)[:, _OP]  # [num_work]
    result = np.full((len(ops), len(SIDES)), -1.0, dtype=np.float32)
    for column, side in enumerate(SIDES):
        ends = edges(data, side)
        result[ends[1], column] = ops[ends[0]]
    return result
