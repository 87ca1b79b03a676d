"""The typed graph network as a row: trained, gated, scheduled as `predict.py mode=hybrid` schedules it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.data.prepare import PreparedData, Step
from gnnperf.data.step_time import contended_step_time_us, step_time_us
from gnnperf.data.vocabulary import FIELDS, UNKNOWN
from gnnperf.models.gnn import WORK, TypedGNN
from gnnperf.prediction import Alone, only
from gnnperf.training.config import TrainConfig
from gnnperf.training.evaluate import predicted, predicted_means
from gnnperf.training.fit import build_model, fit
from gnnperf.training.gate import keep_what_helps

OP = FIELDS.index("op_name")


@dataclass(frozen=True)
class Network:
    """Trains a TypedGNN; every ablation is a configuration of its own.

    Attributes:
        config: what train.py would be told; its data are those given to `fit`, its seed too.
    """

    config: TrainConfig

    def fit(self, data: PreparedData, seed: int) -> TrainedNetwork:
        """Weights of the best epoch on the validation runs; heads that do not beat their base there are silent."""
        with tempfile.TemporaryDirectory() as out:
            config = replace(self.config, seed=seed, out=out, resume=None)
            network = fit(config, data, build_model(config, data))
        keep_what_helps(network, data)
        return TrainedNetwork(network)


@dataclass(frozen=True)
class TrainedNetwork:
    """Attributes: network: trained and gated."""

    network: TypedGNN

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes]; NaN at device and link nodes."""
        return self._told(step, predicted(self.network, step))

    def step_us(self, step: Step) -> float:
        """Scheduled; what was learned was measured beside other work, what kept its base is stretched by it."""
        alone, means_us = self._alone(step), self._told(step, predicted_means(self.network, step))
        if alone is None:
            return step_time_us(step, means_us)
        return contended_step_time_us(step, means_us, alone)

    def left_to_base(self, step: Step) -> np.ndarray:
        """[num_nodes] bool, nodes that others are to answer for: none."""
        return np.zeros(len(step.nodes), dtype=bool)

    def _told(self, step: Step, by_type: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.where(self.left_to_base(step), np.nan, _of_nodes(step, by_type))

    def _alone(self, step: Step) -> Alone | None:
        """Of nodes that keep their base in every respect; None: nobody's."""
        silent = [t for t in WORK if self.network.keeps_base(t)]
        keeps = step.nodes["node_type"].astype(str).isin(silent).to_numpy() | self.left_to_base(step)
        alone = only(step.base.alone, keeps & np.isfinite(step.base.latency_us))
        return alone if alone is not None and alone.nodes.any() else None


@dataclass(frozen=True)
class Hybrid:
    """The same network, asked as `predict.py mode=hybrid` asks it: ops that it has not seen are left to the base.

    Attributes:
        network: how it is trained.
    """

    network: Network

    def fit(self, data: PreparedData, seed: int) -> KnownOpsOnly:
        """As Network.fit."""
        return KnownOpsOnly(self.network.fit(data, seed).network)


@dataclass(frozen=True)
class KnownOpsOnly(TrainedNetwork):
    """A trained network that answers for ops of its vocabulary."""

    def left_to_base(self, step: Step) -> np.ndarray:
        """[num_nodes] bool, nodes whose op was never measured in training, in a node of that type."""
        left = np.zeros(len(step.nodes), dtype=bool)
        for node_type in WORK:
            store = step.data[node_type]
            left[store.node_id.numpy()] = (store.codes[:, OP] == UNKNOWN).numpy()
        return left


def _of_nodes(step: Step, by_type: Mapping[str, np.ndarray]) -> np.ndarray:
    """[num_nodes]; NaN at device and link nodes."""
    found = np.full(len(step.nodes), np.nan)
    for node_type, values in by_type.items():
        found[step.data[node_type].node_id.numpy()] = values
    return found
