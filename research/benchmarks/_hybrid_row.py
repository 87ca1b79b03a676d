"""The hybrid as a row: what `predict.py mode=hybrid` answers for the recordings that the table judges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gnnperf.gnn.data.cache import code_of
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.trust import fit_trust
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.baselines.network import PredictorAnswer
from research.benchmarks._cached_networks import CachedNetwork

BLENDS = ("gnn/trust", "predict")


@dataclass(frozen=True)
class Hybrid:
    """A network, as far as it is trusted, and the corrected analytical answer.

    Attributes:
        network: whose; trained if it is not there.
        code: of what blends: a cell of another is made anew.
    """

    network: CachedNetwork
    code: str = field(default_factory=lambda: code_of(*BLENDS))

    def fit(self, data: PreparedData, seed: int) -> PredictorAnswer:
        """As the network's, trusted as this code trusts it: weights are kept, what blends may have changed."""
        retained = self.network.checkpoint(data, seed)
        now = replace(retained, trust=fit_trust(retained.network(), data))
        return PredictorAnswer(BlendedPredictor(GnnPredictor(now)))
