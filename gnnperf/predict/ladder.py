"""Who answers with a checkpoint, by mode."""

from __future__ import annotations

from pathlib import Path

from gnnperf.analytic import AnalyticPredictor
from gnnperf.gnn.checkpoint import Checkpoint
from gnnperf.graph.prediction import Predictor
from gnnperf.predict.blended import BlendedPredictor
from gnnperf.predict.config import Mode
from gnnperf.predict.gnn import GnnPredictor
from gnnperf.predict.pretrained import NetworkAlone, PretrainedPredictor

CALIBRATED = (Mode.hybrid, Mode.analytic)  # modes that have intervals of their own


def predictor_of(checkpoint: Checkpoint, mode: Mode) -> Predictor:
    """Who answers in this mode.

    The network; the network blended with the analytical model; or that model with what the training runs told of hosts
    and ops.
    """
    if mode is Mode.analytic:
        return AnalyticPredictor(checkpoint.constants)
    network = GnnPredictor(checkpoint)
    return network if mode is Mode.gnn else BlendedPredictor(network)


def op_predictor_of(checkpoint: Path, mode: Mode) -> Predictor:
    """The same with a checkpoint of op tables, which knows nothing of hosts."""
    if mode is Mode.analytic:
        return AnalyticPredictor()
    return NetworkAlone(PretrainedPredictor(checkpoint)) if mode is Mode.gnn else PretrainedPredictor(checkpoint)
