"""The typed graph network as a row: trained, gated, scheduled as `predict.py mode=hybrid` schedules it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.data.prepare import PreparedData, Step
from gnnperf.data.step_time import AloneAnswer, contended_step_time_us, in_place_us
from gnnperf.data.vocabulary import FIELDS, UNKNOWN
from gnnperf.models.gnn import WORK, TypedGNN
from gnnperf.training.config import TrainConfig
from gnnperf.training.evaluate import alone_answer
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
        """[num_nodes] beside other work; NaN where others are to answer, and at device and link nodes."""
        return in_place_us(step, self.alone(step))

    def step_us(self, step: Step) -> float:
        """Scheduled, with contention."""
        return contended_step_time_us(step, self.alone(step).scheduled_us)

    def alone(self, step: Step) -> AloneAnswer:
        """Each node by itself; NaN where others are to answer."""
        told, left = alone_answer(self.network, step), self.left_to_base(step)
        return AloneAnswer(np.where(left, np.nan, told.usual_us), np.where(left, np.nan, told.scheduled_us))

    def left_to_base(self, step: Step) -> np.ndarray:
        """[num_nodes] bool, nodes that others are to answer for: none."""
        return np.zeros(len(step.nodes), dtype=bool)


@dataclass(frozen=True)
class Hybrid:
    """The same network; ops that it has not seen are left to the base. `predict.py mode=hybrid` blends (gnnperf.trust).

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
