"""BlendedPredictor: the network where training had such nodes, the analytical model elsewhere.

latency = network^weight x analytical^(1 - weight)         weight: gnnperf.gnn.trust

weight     source            latency
1          gnn               the network's
between    gnn_calibrated    of both
0          analytic          the analytical model's
           uncovered         none; the reason says why
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import Segment, Source
from gnnperf.gnn import Checkpoint
from gnnperf.graph import REASONS, ExecutionGraph, Prediction, Predictor, only, uncovered, uncovered_ops
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.gnn import GnnPredictor, Predicted
from gnnperf.predict.request import Mode

SILENT = "the network's corrections did not help on validation runs"
NO_ANALYTIC = ", and the analytical model has no answer"
NOT_TRACED = "its peers were not traced"

CALIBRATED = (Mode.hybrid, Mode.analytic)  # modes that have intervals of their own


def predictor_of(checkpoint: Checkpoint, mode: Mode) -> Predictor:
    """The predictor of a mode.

    The network; the network blended with the analytical model; or that model with the constants of the training runs.
    """
    if mode is Mode.analytic:
        return AnalyticPredictor(checkpoint.constants)
    network = GnnPredictor(checkpoint)
    return network if mode is Mode.gnn else BlendedPredictor(network)


@dataclass(frozen=True)
class BlendedPredictor:
    """Answers for whatever the network or the analytical model has an answer for.

    Attributes:
        network: with the checkpoint it is of.
    """

    network: GnnPredictor

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Every node's latency, source and reason.

        Raises:
            InputError: an edge or link class that the network does not know.
        """
        base = self.network.analytic.predict(graph, cluster)
        given = self.network.given(graph, cluster, base)
        latency_us, mean_us = (_blend(us, base.latency_us, given) for us in given.latency_us)
        missing, unknown = uncovered(graph, latency_us), np.full(graph.num_nodes, np.nan)
        source = _sources(given, missing)
        return Prediction(
            graph=graph,
            latency_us=latency_us,
            mean_latency_us=mean_us,
            lag_us=base.lag_us,
            source=source,
            reason=_reasons(graph, given, source),
            analytic_latency_us=base.latency_us,
            latency_low_us=unknown,
            latency_high_us=unknown.copy(),
            uncovered_ops=uncovered_ops(graph, latency_us),
            isolated=only(base.isolated, np.isfinite(latency_us)),
        )


def _blend(predicted_us: np.ndarray, analytic_us: np.ndarray, given: Predicted) -> np.ndarray:
    """[num_nodes]; without an analytical latency the network's stands if training has the op."""
    weight, uncosted = given.weight, np.isnan(analytic_us)
    network_us = np.where(given.known_op | ~uncosted, predicted_us, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        both_us = np.exp(weight * np.log(network_us) + (1.0 - weight) * np.log(analytic_us))
    part = (weight > 0) & (weight < 1) & (network_us > 0) & (analytic_us > 0)
    whole_us = np.where((weight >= 1) | uncosted, network_us, analytic_us)
    result: np.ndarray = np.where(part, both_us, whole_us)
    return result


def _sources(given: Predicted, missing: np.ndarray) -> np.ndarray:
    source = np.where(given.weight > 0, Source.GNN_CALIBRATED, Source.ANALYTIC).astype(object)
    source[given.floored & (given.weight < 1)] = Source.GNN_CALIBRATED  # only the network has a latency
    source[given.weight >= 1] = Source.GNN
    source[given.silent & (source == Source.GNN)] = Source.ANALYTIC
    source[missing] = Source.UNCOVERED
    return source


def _reasons(graph: ExecutionGraph, given: Predicted, source: np.ndarray) -> np.ndarray:
    reason = given.reason.copy()
    reason[(source == Source.ANALYTIC) & (given.weight >= 1)] = SILENT
    doubted = (source == Source.UNCOVERED) | ((source == Source.GNN_CALIBRATED) & given.floored)
    reason[doubted] = reason[doubted] + NO_ANALYTIC
    reason[(source == Source.UNCOVERED) & (given.weight >= 1)] = REASONS[Source.UNCOVERED]
    reason[(graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()] = NOT_TRACED
    return reason
