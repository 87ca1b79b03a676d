"""A network that was trained on other programs, as rows: as it is, and trained on with a few runs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace

from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.finetune import Start, begin_from
from gnnperf.gnn.training.config import TrainConfig
from gnnperf.gnn.training.fit import build_model, fit
from gnnperf.gnn.training.gate import keep_what_helps
from research.baselines.network import TrainedNetwork


@dataclass(frozen=True)
class AsItIs:
    """The network without a further step.

    Attributes:
        start: it; of the file that it is in (`name`).
        name: tells it from others.
    """

    start: Start = field(repr=False)
    name: str

    def fit(self, data: PreparedData, seed: int) -> TrainedNetwork:
        """Nothing is fitted: `data` are as its own training prepared them."""
        return TrainedNetwork(self.start.network())


@dataclass(frozen=True)
class FineTuned:
    """The network, trained on as `train.py init_from=...` does.

    Attributes:
        config: of the further training.
        start: the network.
        name: tells it from others.
    """

    config: TrainConfig
    start: Start = field(repr=False)
    name: str

    def fit(self, data: PreparedData, seed: int) -> TrainedNetwork:
        """Weights of the best epoch on the validation runs, gated there. `data` were prepared for the start."""
        with tempfile.TemporaryDirectory() as out:
            config = replace(self.config, seed=seed, out=out, resume=None)
            network = fit(config, data, begin_from(build_model(config, data), self.start))
        keep_what_helps(network, data)
        return TrainedNetwork(network)
