"""The typed graph network as a row: trained, gated, scheduled as `predict.py mode=hybrid` schedules it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.data.prepare import PreparedData, Step
from gnnperf.data.step_time import contended_step_time_us, step_time_us
from gnnperf.models.gnn import WORK, TypedGNN
from gnnperf.prediction import Alone, only
from gnnperf.training.config import TrainConfig
from gnnperf.training.evaluate import predicted, predicted_means
from gnnperf.training.fit import build_model, fit
from gnnperf.training.gate import keep_what_helps


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
        return _of_nodes(step, predicted(self.network, step))

    def step_us(self, step: Step) -> float:
        """Scheduled; what was learned was measured beside other work, what kept its base is stretched by it."""
        alone, means_us = self._alone(step), _of_nodes(step, predicted_means(self.network, step))
        if alone is None:
            return step_time_us(step, means_us)
        return contended_step_time_us(step, means_us, alone)

    def _alone(self, step: Step) -> Alone | None:
        """Of the node types that keep their base in every respect; None: nobody's."""
        silent = [t for t in WORK if self.network.keeps_base(t)]
        keeps = step.nodes["node_type"].astype(str).isin(silent).to_numpy() & np.isfinite(step.base.latency_us)
        alone = only(step.base.alone, keeps)
        return alone if alone is not None and alone.nodes.any() else None


def _of_nodes(step: Step, by_type: Mapping[str, np.ndarray]) -> np.ndarray:
    """[num_nodes]; NaN at device and link nodes."""
    found = np.full(len(step.nodes), np.nan)
    for node_type, values in by_type.items():
        found[step.data[node_type].node_id.numpy()] = values
    return found
