"""BlendedPredictor: the network as far as it can be trusted, the corrected analytical answer as far as it cannot.

latency = network^weight x (analytical x correction)^(1 - weight)         weight as gnnperf.gnn.trust tells it

weight     source            answer
1          gnn               the network's
between    gnn_calibrated    of both
0          analytic          the analytical model's, corrected by what it missed in training
           uncovered         neither has one, and the reason says why
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import Segment, Source
from gnnperf.gnn import Checkpoint, Trusted
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
        trusted = given.trusted
        corrected_us = self._corrected_us(graph, cluster, base, trusted)  # [num_nodes]
        latency_us, mean_us = (_blend(us, corrected_us, given, trusted.weight) for us in given.latency_us)
        missing, unknown = uncovered(graph, latency_us), np.full(graph.num_nodes, np.nan)
        source = _sources(given, trusted, missing)
        return Prediction(
            graph=graph,
            latency_us=latency_us,
            mean_latency_us=mean_us,
            lag_us=base.lag_us,
            source=source,
            reason=_reasons(graph, given, trusted, source),
            analytic_latency_us=base.latency_us,
            latency_low_us=unknown,
            latency_high_us=unknown.copy(),
            uncovered_ops=uncovered_ops(graph, latency_us),
            isolated=only(base.isolated, np.isfinite(latency_us)),
        )

    def _corrected_us(
        self, graph: ExecutionGraph, cluster: ClusterSpec, base: Prediction, trusted: Trusted
    ) -> np.ndarray:
        """[num_nodes]; what does not carry to another program, corrections of families do not either."""
        log = self.network.checkpoint.trust.corrections.of(graph.nodes, cluster.device.name)
        corrected: np.ndarray = base.latency_us * np.exp(log * trusted.cross_step)
        return corrected


def _blend(predicted_us: np.ndarray, corrected_us: np.ndarray, given: Predicted, weight: np.ndarray) -> np.ndarray:
    """[num_nodes]; without an analytical answer the network's stands if it knows the op."""
    isolated = np.isnan(corrected_us)
    network_us = np.where(given.known_op | ~isolated, predicted_us, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        both_us = np.exp(weight * np.log(network_us) + (1.0 - weight) * np.log(corrected_us))
    part = (weight > 0) & (weight < 1) & (network_us > 0) & (corrected_us > 0)
    whole_us = np.where((weight >= 1) | isolated, network_us, corrected_us)
    result: np.ndarray = np.where(part, both_us, whole_us)
    return result


def _sources(given: Predicted, trusted: Trusted, missing: np.ndarray) -> np.ndarray:
    source = np.where(trusted.weight > 0, Source.GNN_CALIBRATED, Source.ANALYTIC).astype(object)
    source[given.floored & (trusted.weight < 1)] = Source.GNN_CALIBRATED  # the network by itself, and in doubt
    source[trusted.weight >= 1] = Source.GNN
    source[given.silent & (source == Source.GNN)] = Source.ANALYTIC
    source[missing] = Source.UNCOVERED
    return source


def _reasons(graph: ExecutionGraph, given: Predicted, trusted: Trusted, source: np.ndarray) -> np.ndarray:
    reason = trusted.reason.copy()
    reason[(source == Source.ANALYTIC) & (trusted.weight >= 1)] = SILENT
    doubted = (source == Source.UNCOVERED) | ((source == Source.GNN_CALIBRATED) & given.floored)
    reason[doubted] = reason[doubted] + NO_ANALYTIC
    reason[(source == Source.UNCOVERED) & (trusted.weight >= 1)] = REASONS[Source.UNCOVERED]
    reason[(graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()] = NOT_TRACED
    return reason
