"""Gradient-boosted trees (LightGBM, Ke et al. 2017) on rows of nodes: the residual log(latency / base) of each node.

The same labels, weights and base as the network's. Comm nodes keep their base, as they do there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gnnperf.baselines.trees_table import WORK, Choice, NodeColumns, Own, work_values
from gnnperf.baselines.tuning import INSTALL, Fitted, Range, Settings
from gnnperf.data.prepare import PreparedData, Step
from gnnperf.data.step_time import step_time_us
from gnnperf.errors import InputError
from gnnperf.evaluate.metrics import gmae
from gnnperf.schema import NodeType

SHARE_WEIGHT = 0.5  # of OptimConfig: half by node, half by the root of its share of time
MAX_TREES, PATIENCE = 600, 30
TREE_START: Mapping[str, float] = {
    "num_leaves": 127, "learning_rate": 0.08, "min_child_samples": 20, "feature_fraction": 0.4, "lambda_l2": 0.01,
}  # fmt: skip
TREE_SPACE: Mapping[str, Range] = {
    "num_leaves": Range(15, 255, whole=True),
    "learning_rate": Range(0.03, 0.3),
    "min_child_samples": Range(3, 200, whole=True),
    "feature_fraction": Range(0.1, 1.0),
    "lambda_l2": Range(1e-3, 100.0),
}
# Absolute errors in log space: latencies have heavy tails on both sides. Sums in one order, so that bits repeat.
FIXED: Mapping[str, Any] = {
    "objective": "l1", "bagging_fraction": 0.8, "bagging_freq": 1, "max_bin": 255, "feature_pre_filter": False,
    "num_threads": 1, "deterministic": True, "force_col_wise": True, "verbosity": -1,
}  # fmt: skip


@dataclass(frozen=True)
class Trees:
    """Trees over chosen columns: tuning.Tunable.

    Attributes:
        name: names the settings it is tuned to.
        choice: which columns describe a node.
        start, space: of the search.
    """

    name: str = "trees"
    choice: Choice = field(default_factory=Own)
    start: Settings = field(default_factory=lambda: TREE_START)
    space: Mapping[str, Range] = field(default_factory=lambda: TREE_SPACE)

    def bench(self, data: PreparedData) -> TreeBench:
        """Tables of all labeled nodes."""
        return TreeBench(self.choice.columns(data), data)


class TreeBench:
    """Training and validation tables, binned once.

    Args:
        columns: what describes a node.
        data: the runs.

    Raises:
        InputError: LightGBM is not installed.
    """

    def __init__(self, columns: NodeColumns, data: PreparedData) -> None:
        self.columns = columns
        self.library = _lightgbm()
        self.val = data.steps["val"]
        self.train_set = self._dataset(data.steps["train"], None)
        self.val_set = self._dataset(self.val, self.train_set)

    def fit(self, settings: Settings, seed: int) -> Fitted:
        """Boost until PATIENCE trees in a row do not lower the validation loss."""
        parameters = {**FIXED, **settings, "seed": seed}
        stop = self.library.early_stopping(PATIENCE, verbose=False)
        booster = self.library.train(
            parameters, self.train_set, MAX_TREES, valid_sets=[self.val_set], callbacks=[stop]
        )  # fmt: skip
        answer = TreeAnswer(booster, self.columns)
        return Fitted(answer, node_error(answer, self.val))

    def _dataset(self, steps: Sequence[Step], reference: Any) -> Any:
        labeled = [np.isfinite(work_values(s.data, "target")) for s in steps]
        rows = [self.columns.matrix(s.data)[use] for s, use in zip(steps, labeled, strict=True)]
        target, share = (
            np.concatenate([work_values(s.data, name)[use] for s, use in zip(steps, labeled, strict=True)])
            for name in ("target", "time_share")
        )
        weight = (1 - SHARE_WEIGHT) + SHARE_WEIGHT * np.sqrt(share)
        made = self.library.Dataset(
            [r for r in rows if len(r)], target, weight=weight, reference=reference,
            categorical_feature=list(self.columns.categorical), params=dict(FIXED),
        )  # fmt: skip
        return made.construct()


@dataclass(frozen=True)
class TreeAnswer:
    """Answers of fitted trees.

    Attributes:
        booster: lightgbm.Booster, at its best iteration.
        columns: what describes a node.
    """

    booster: Any
    columns: NodeColumns

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes] base * exp(residual); comm nodes their base, 0 for device and link nodes."""
        residual = self.booster.predict(self.columns.matrix(step.data), num_threads=1)  # [num_work]
        types = np.repeat(WORK, [len(step.data[t].node_id) for t in WORK])  # [num_work]
        residual = np.where(types == NodeType.COMM, 0.0, residual)
        found = np.zeros(step.graph.num_nodes)
        found[work_values(step.data, "node_id")] = work_values(step.data, "base_us") * np.exp(residual)
        return found

    def step_us(self, step: Step) -> float:
        """The schedule of these latencies."""
        return step_time_us(step, self.latency_us(step))


class NodeAnswer(Protocol):
    """An answer that has latencies of nodes."""

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes]."""
        ...


def node_error(answer: NodeAnswer, steps: Sequence[Step]) -> float:
    """GMAE over the labeled nodes of these steps together."""
    predicted, measured = [], []
    for step in steps:
        use = np.isfinite(work_values(step.data, "target"))
        predicted.append(answer.latency_us(step)[work_values(step.data, "node_id")][use])
        measured.append(work_values(step.data, "latency_us")[use])
    return gmae(np.concatenate(predicted), np.concatenate(measured))


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise InputError("lightgbm is not installed", where="trees", remedy=INSTALL) from error
    return lightgbm
