"""The hybrid as a row: what `predict.py mode=hybrid` answers for the recordings that the table judges."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks._kept_networks import KeptNetwork
from gnnperf.data.prepare import PreparedData, Step
from gnnperf.data.step_time import AloneAnswer, contended_step_time_us, in_place_us
from gnnperf.predict.blended import BlendedPredictor
from gnnperf.predict.gnn import GnnPredictor


@dataclass(frozen=True)
class Hybrid:
    """A network, as far as it is trusted, and the corrected analytical answer.

    Attributes:
        network: whose; trained if it is not there.
    """

    network: KeptNetwork

    def fit(self, data: PreparedData, seed: int) -> Blended:
        """As the network's."""
        return Blended(BlendedPredictor(GnnPredictor(self.network.checkpoint(data, seed))))


@dataclass(frozen=True)
class Blended:
    """Attributes: predictor: of the checkpoint; told: recording -> what it said, since features take longest."""

    predictor: BlendedPredictor
    told: dict[str, AloneAnswer] = field(default_factory=dict, repr=False)

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes] beside other work; NaN where neither has an answer."""
        return in_place_us(step, self._alone(step))

    def step_us(self, step: Step) -> float:
        """Scheduled, with contention."""
        return contended_step_time_us(step, self._alone(step).scheduled_us)

    def _alone(self, step: Step) -> AloneAnswer:
        if step.run not in self.told:
            found = self.predictor.predict(step.graph, step.cluster)
            self.told[step.run] = AloneAnswer(found.latency_us, found.scheduled_us)
        return self.told[step.run]
