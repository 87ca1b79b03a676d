"""The typed graph network as a row: trained, gated, scheduled as `predict.py` schedules it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.step_time import AloneAnswer, contended_step_time_us, in_place_us
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.training.config import TrainConfig
from gnnperf.gnn.training.evaluate import alone_answer
from gnnperf.gnn.training.fit import build_model, fit
from gnnperf.gnn.training.gate import keep_what_helps


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
        """[num_nodes] beside other work; NaN at device and link nodes."""
        return in_place_us(step, self.alone(step))

    def step_us(self, step: Step) -> float:
        """Scheduled, with contention."""
        return contended_step_time_us(step, self.alone(step).scheduled_us)

    def alone(self, step: Step) -> AloneAnswer:
        """Each node by itself; NaN at device and link nodes."""
        return alone_answer(self.network, step)
