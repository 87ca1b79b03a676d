"""Gradient-boosted trees (LightGBM, Ke et al. 2017) on rows of nodes: the residual log(latency / base) of each node.

The same labels, weights and base as the network's: one ensemble shows what a node usually takes, another one what a
schedule adds up. Comm nodes keep their base, as they do there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch_geometric.data import HeteroData

from gnnperf.core import WORK_TYPES, InputError, NodeType
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
