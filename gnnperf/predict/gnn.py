"""GnnPredictor: the trained network as a Predictor. It answers where it knows the op, and only there."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from gnnperf.analytic import AnalyticPredictor
from gnnperf.checkpoint import Checkpoint
from gnnperf.data.features import features
from gnnperf.data.vocabulary import FIELDS, UNKNOWN
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.models.gnn import WORK, TypedGNN
from gnnperf.models.segmented import answers_of
from gnnperf.predict.crossing import asked_over
from gnnperf.prediction import Prediction, Predictor, only, uncovered_ops
from gnnperf.schema import Segment, Source


class GnnPredictor:
    """latency = base * exp(residual), base being the analytical answer or the typed floor of the checkpoint.

    Args:
        checkpoint: the trained model.
        analytic: the analytical model that supplies bases and lags; None: the one it was trained with.
    """

    def __init__(self, checkpoint: Checkpoint, analytic: Predictor | None = None) -> None:
        self.checkpoint = checkpoint
        self.analytic: Predictor = analytic or AnalyticPredictor(checkpoint.constants)

    @cached_property
    def network(self) -> TypedGNN:
        """The network, built once."""
        return self.checkpoint.network()

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Latency of every node whose op, in a node of that type, was measured in training; NaN elsewhere.

        Raises:
            InputError: an edge or link class that the network does not know.
        """
        base = self.analytic.predict(graph, cluster)
        latency_us, mean_us = self._latencies_us(graph, cluster, base)  # [num_nodes] each
        covered = np.isfinite(latency_us)  # [num_nodes]
        unknown = np.full(graph.num_nodes, np.nan)
        source = np.where(covered, self._sources(graph.nodes, base, latency_us), Source.UNCOVERED).astype(object)
        return Prediction(
            graph=graph,
            latency_us=latency_us,
            mean_latency_us=mean_us,
            lag_us=base.lag_us,
            source=source,
            analytic_latency_us=base.latency_us,
            latency_low_us=unknown,
            latency_high_us=unknown.copy(),
            uncovered_ops=uncovered_ops(graph, latency_us),
            alone=only(base.alone, covered),
        )

    def _sources(self, nodes: pd.DataFrame, base: Prediction, latency_us: np.ndarray) -> np.ndarray:
        """[num_nodes]: where a head is silent and its base is the analytical answer, that stands and is called so."""
        silent = [t for t in WORK if self.network.is_silent(t)]
        analytic = nodes["node_type"].isin(silent).to_numpy() & (latency_us == base.latency_us)
        return np.where(analytic, Source.ANALYTIC, Source.GNN)

    @torch.no_grad()
    def _latencies_us(self, graph: ExecutionGraph, cluster: ClusterSpec, base: Prediction) -> np.ndarray:
        """[2, num_nodes] usual and mean latency.

        0 for device and link nodes, NaN where the op is unknown or the wait's peers were not traced.
        """
        known, op = self.checkpoint, FIELDS.index("op_name")
        over = asked_over(graph.for_predictors(), cluster)
        data = features(over, cluster, _padded(base, over), known.vocabulary, known.floors)
        answers = answers_of(self.network, known.normalizer.apply(data))
        found = np.zeros((2, graph.num_nodes))
        for node_type in WORK:
            store, answer = data[node_type], answers[node_type]
            both = torch.stack([answer.residual, answer.scheduled_residual]).double().exp() * store.base_us  # [2, n]
            both[:, store.codes[:, op] == UNKNOWN] = torch.nan
            found[:, store.node_id.numpy()] = both.numpy()
        found[:, (graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()] = np.nan
        return found


def _padded(base: Prediction, over: ExecutionGraph) -> Prediction:
    """The base of a graph with links that it did not have: their latency is 0, as of all hardware."""
    more = np.zeros(over.num_nodes - base.graph.num_nodes)
    return replace(base, graph=over, latency_us=np.concatenate([base.latency_us, more]))
