"""The typed graph network as a row: trained, gated, scheduled as `predict.py` schedules it; and its hybrid."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace

from gnnperf.gnn import Checkpoint, TrainConfig, TypedGNN, build_model, fit, keep_what_helps
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.step_time import IsolatedPrediction
from gnnperf.gnn.training.evaluate import isolated_prediction
from gnnperf.graph import Prediction
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.baselines.judge import Fit, IsolatedEstimate


@dataclass(frozen=True)
class Network:
    """Trains a TypedGNN; every ablation is a configuration of its own."""

    config: TrainConfig  # what train.py would be given; its data are those given to `fit`, its seed too

    def fit(self, data: PreparedData, seed: int) -> "TrainedNetwork":
        """Weights of the best epoch on the validation runs; heads that do not beat their base there are silent."""
        with tempfile.TemporaryDirectory() as out:
            config = replace(self.config, seed=seed, out=out, resume=None)
            network = fit(config, data, build_model(config, data))
        keep_what_helps(network, data)
        return TrainedNetwork(network)


@dataclass(frozen=True)
class TrainedNetwork(IsolatedEstimate):
    """Attributes: network: trained and gated."""

    network: TypedGNN

    def isolated(self, step: Step) -> IsolatedPrediction:
        """Each node by itself; NaN at device and link nodes."""
        return isolated_prediction(self.network, step)


@dataclass(frozen=True)
class PredictorEstimate(IsolatedEstimate):
    """Of a predictor: what each node of a step takes by itself."""

    predict: Callable[[Step], Prediction]

    def isolated(self, step: Step) -> IsolatedPrediction:
        """Each node by itself; NaN where there is no prediction."""
        result = self.predict(step)
        return IsolatedPrediction(result.latency_us, result.scheduled_us)


def fits_of(checkpoint: Checkpoint, network: TypedGNN, row: str, fit_s: float) -> dict[str, Fit]:
    """Two rows: the network, and `<row>-hybrid`, what predict.py predicts with its checkpoint in mode=hybrid."""
    seed, given = checkpoint.provenance["training"]["seed"], f"checkpoint {checkpoint.sha256}"
    hybrid = PredictorEstimate(BlendedPredictor(GnnPredictor(checkpoint)).predict_step)
    return {row: Fit(TrainedNetwork(network), given, seed, fit_s),
            f"{row}-hybrid": Fit(hybrid, f"hybrid of {given}", seed, fit_s)}  # fmt: skip
