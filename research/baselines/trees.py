"""Gradient-boosted trees (LightGBM, Ke et al. 2017) on rows of nodes: the residual log(latency / base) of each node.

The same labels, weights and base as the network's: one ensemble shows what a node usually takes, another one what a
schedule adds up. Comm nodes keep their base, as they do there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch_geometric.data import HeteroData

from gnnperf.core import NUM_TEXT_FEATURES, WORK_TYPES, InputError, NodeType, Relation
from gnnperf.gnn.data.features import FORWARD_EDGE_TYPES
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.step_time import IsolatedPrediction
from gnnperf.gnn.data.vocabulary import FIELDS, Vocabulary
from research.baselines.judge import IsolatedEstimate

# What gradient-boosted trees are given of a node: what the network's encoders are given of it, as one row of numbers.
#
# Words of different node types are different words, as they are for the network, which has an embedding per type.

WORK = tuple(map(str, WORK_TYPES))
INSTALL = "pip install --editable './research[baselines]'"


class NodeColumns(Protocol):
    """Which columns describe a node."""

    @property
    def categorical(self) -> tuple[int, ...]:
        """Positions of the columns that hold codes of words."""
        ...

    def matrix(self, data: HeteroData) -> np.ndarray:
        """[num_work, num_columns] float32, the work nodes of one step, type by type in WORK order."""
        ...


@dataclass(frozen=True)
class OwnColumns:
    """A node's own features: WORK_NAMES (normalized), its type, its words."""

    vocabulary: Vocabulary  # words of the training runs

    @property
    def categorical(self) -> tuple[int, ...]:
        """The node type and every field of the vocabulary."""
        return tuple(range(len(WORK_NAMES), len(WORK_NAMES) + 1 + len(FIELDS)))

    def matrix(self, data: HeteroData) -> np.ndarray:
        """[num_work, WORK_NAMES + 1 + FIELDS] float32."""
        numbers = np.concatenate([data[t].x.numpy() for t in WORK])  # [num_work, num_features]
        types = np.repeat(np.arange(len(WORK)), [len(data[t].x) for t in WORK])  # [num_work]
        words = joint_codes(data, self.vocabulary)  # [num_work, num_fields]
        return np.concatenate([numbers, types[:, None], words], axis=1).astype(np.float32)


class Choice(Protocol):
    """How columns are chosen. Its repr names it: results are kept under the repr of what made them."""

    def columns(self, data: PreparedData) -> NodeColumns:
        """From training runs only."""
        ...


@dataclass(frozen=True)
class Own:
    """A node's own features."""

    def columns(self, data: PreparedData) -> OwnColumns:
        return OwnColumns(data.vocabulary)


def joint_codes(data: HeteroData, vocabulary: Vocabulary) -> np.ndarray:
    """[num_work, num_fields] int64 codes of words, those of each node type after those of the type before."""
    first = np.zeros(len(FIELDS), dtype=np.int64)
    result = []
    for node_type in WORK:
        result.append(data[node_type].codes.numpy() + first)  # [n, num_fields]
        first = first + np.array([vocabulary.num_codes(node_type, field) for field in FIELDS])
    return np.concatenate(result)


def work_values(data: HeteroData, name: str) -> np.ndarray:
    """[num_work] one attribute of the work nodes (base_us, target, ...), type by type in WORK order."""
    return np.concatenate([data[t][name].numpy() for t in WORK])


SHARE_WEIGHT = 0.5  # of OptimConfig: half by node, half by the root of its share of time
MAX_TREES, PATIENCE = 600, 30
TREE_SETTINGS: Mapping[str, float] = {
    "num_leaves": 127, "learning_rate": 0.08, "min_child_samples": 20, "feature_fraction": 0.4, "lambda_l2": 0.01,
}  # fmt: skip
WHOLE_NUMBERS = ("num_leaves", "min_child_samples")  # LightGBM refuses 63.0
# Absolute errors in log space: latencies have heavy tails on both sides. Sums in one order, so that bits repeat.
FIXED: Mapping[str, Any] = {
    "objective": "l1", "bagging_fraction": 0.8, "bagging_freq": 1, "max_bin": 255, "feature_pre_filter": False,
    "num_threads": 1, "deterministic": True, "force_col_wise": True, "verbosity": -1,
}  # fmt: skip
LABELS = ("target", "steady_target")  # what is usual, what a schedule adds up


@dataclass(frozen=True)
class Trees:
    """Trees over chosen columns: a Learner."""

    choice: Choice = field(default_factory=Own)  # which columns describe a node
    # of LightGBM; chosen by hand on the validation runs of one split
    settings: Mapping[str, float] = field(default_factory=lambda: TREE_SETTINGS)

    def fit(self, data: PreparedData, seed: int) -> "TreeAnswer":
        """Boost until PATIENCE trees in a row do not lower the validation loss, for each of LABELS."""
        library, columns = _lightgbm(), self.choice.columns(data)
        parameters = {**FIXED, **self.settings, "seed": seed}
        usual, scheduled = (_boosted(library, columns, data, label, parameters) for label in LABELS)
        return TreeAnswer(usual, scheduled, columns)


def _boosted(library: Any, columns: NodeColumns, data: PreparedData, label: str, parameters: Mapping[str, Any]) -> Any:
    train = _dataset(library, columns, data.steps["train"], label, None)
    val = _dataset(library, columns, data.steps["val"], label, train)
    stop = library.early_stopping(PATIENCE, verbose=False)
    return library.train(dict(parameters), train, MAX_TREES, valid_sets=[val], callbacks=[stop])


def _dataset(library: Any, columns: NodeColumns, steps: Sequence[Step], label: str, reference: Any) -> Any:
    """Labeled nodes of these steps, binned as `reference` is."""
    labeled = [np.isfinite(work_values(s.data, label)) for s in steps]
    rows = [columns.matrix(s.data)[use] for s, use in zip(steps, labeled, strict=True)]
    target, share = (
        np.concatenate([work_values(s.data, name)[use] for s, use in zip(steps, labeled, strict=True)])
        for name in (label, "time_share")
    )
    weight = (1 - SHARE_WEIGHT) + SHARE_WEIGHT * np.sqrt(share)
    made = library.Dataset(
        [r for r in rows if len(r)], target, weight=weight, reference=reference,
        categorical_feature=list(columns.categorical), params=dict(FIXED),
    )  # fmt: skip
    return made.construct()


@dataclass(frozen=True)
class TreeAnswer(IsolatedEstimate):
    """Predictions of fitted trees."""

    # usual, scheduled: lightgbm.Booster, at its best iteration, for each of LABELS
    usual: Any
    scheduled: Any
    columns: NodeColumns  # what describes a node

    def isolated(self, step: Step) -> IsolatedPrediction:
        """[num_nodes]; comm nodes have their base, device and link nodes 0."""
        matrix = self.columns.matrix(step.data)  # [num_work, num_columns]
        return IsolatedPrediction(
            *(_of_nodes(step, b.predict(matrix, num_threads=1)) for b in (self.usual, self.scheduled))
        )


def _of_nodes(step: Step, residual: np.ndarray) -> np.ndarray:
    """[num_nodes] base * exp(residual [num_work])."""
    types = np.repeat(WORK, [len(step.data[t].node_id) for t in WORK])  # [num_work]
    result = np.zeros(step.graph.num_nodes)
    corrected = np.where(types == NodeType.COMM, 0.0, residual)
    result[work_values(step.data, "node_id")] = work_values(step.data, "base_us") * np.exp(corrected)
    return result


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise InputError("lightgbm is not installed", where="trees", remedy=INSTALL) from error
    return lightgbm


# What the nodes one edge away say, as columns: message passing without weights. Per relation and direction: how many
# neighbors, the op's word of one of them (on a lane there is only one: the op before or after), the mean of their
# numbers and, where a node can have several, the maximum.

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
