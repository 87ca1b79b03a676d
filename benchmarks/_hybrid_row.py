"""The hybrid as a row: what `predict.py mode=hybrid` answers for the recordings that the table judges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks._kept_networks import KeptNetwork
from gnnperf.data.cache import code_of
from gnnperf.data.prepare import PreparedData, Step
from gnnperf.data.step_time import AloneAnswer, contended_step_time_us, in_place_us
from gnnperf.predict.blended import BlendedPredictor
from gnnperf.predict.gnn import GnnPredictor
from gnnperf.trust import fit_trust

BLENDS = ("trust", "predict/gnn.py", "predict/blended.py", "predict/crossing.py")


@dataclass(frozen=True)
class Hybrid:
    """A network, as far as it is trusted, and the corrected analytical answer.

    Attributes:
        network: whose; trained if it is not there.
        code: of what blends: a cell of another is made anew.
    """

    network: KeptNetwork
    code: str = field(default_factory=lambda: code_of(*BLENDS))

    def fit(self, data: PreparedData, seed: int) -> Blended:
        """As the network's, trusted as this code trusts it: weights are kept, what blends may have changed."""
        kept = self.network.checkpoint(data, seed)
        now = replace(kept, trust=fit_trust(kept.network(), data))
        return Blended(BlendedPredictor(GnnPredictor(now)))


class Blended:
    """An answer, kept for the step that was asked about last: features take longest, and each step is asked twice."""

    def __init__(self, predictor: BlendedPredictor) -> None:
        self._predictor = predictor
        self._last: tuple[Step, AloneAnswer] | None = None

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes] beside other work; NaN where neither has an answer."""
        return in_place_us(step, self._alone(step))

    def step_us(self, step: Step) -> float:
        """Scheduled, with contention."""
        return contended_step_time_us(step, self._alone(step).scheduled_us)

    def _alone(self, step: Step) -> AloneAnswer:
        if self._last is None or self._last[0] is not step:
            found = self._predictor.predict(step.graph, step.cluster)
            self._last = step, AloneAnswer(found.latency_us, found.scheduled_us)
        return self._last[1]
