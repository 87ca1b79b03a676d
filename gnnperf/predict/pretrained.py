"""The shipped checkpoint as a Predictor: the analytical answer, corrected where networks of op tables have ground."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import gnnperf
from gnnperf.analytic import AnalyticPredictor
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.core.schema import NodeType, Source
from gnnperf.gnn.pretrain.calls import rows_of_calls
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.prediction import Prediction, Predictor, only, uncovered_ops
from gnnperf.hardware.spec import ClusterSpec

if TYPE_CHECKING:
    from gnnperf.gnn.pretrain.op_checkpoint import OpCheckpoint

SHIPPED = Path(gnnperf.__file__).parent / "gnn" / "pretrained" / "checkpoint.pt"


@dataclass(frozen=True)
class PretrainedPredictor:
    """Answers every node as the analytical model does, and ops of the tables as a network corrects it.

    Attributes:
        path: of a checkpoint of op tables. It is opened, and torch with it, only where a call may be answered by it.
        analytic: the analytical model.
    """

    path: Path = SHIPPED
    analytic: Predictor = field(default_factory=AnalyticPredictor)

    @cached_property
    def checkpoint(self) -> OpCheckpoint:
        """The file, read once.

        Raises:
            InputError: it cannot be used.
        """
        from gnnperf.gnn.pretrain.op_checkpoint import load_op_checkpoint

        return load_op_checkpoint(self.path)

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """The analytical answer; latency and source of nodes that a network answers for are its own.

        Raises:
            InputError: the checkpoint cannot be used.
        """
        base = self.analytic.predict(graph, cluster)
        rows = np.flatnonzero((graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy())
        if cluster.device.kind != "gpu" or not len(rows):
            return base
        calls, code = distinct_calls(graph.nodes.iloc[rows])
        if rows_of_calls(calls, cluster.device).rows.empty:
            return base
        from gnnperf.gnn.pretrain.answer import corrections

        siblings = np.maximum(graph.nodes["num_siblings"].to_numpy(float)[rows], 1.0)
        call_us = np.full(len(calls), np.nan)
        call_us[code] = base.latency_us[rows] * siblings  # kernels of a call share its answer
        found = corrections(self.checkpoint, calls, call_us, cluster.device)
        factor, source = np.ones(graph.num_nodes), base.source.copy()
        factor[rows] = np.exp(found.log_factor[code])
        source[rows[found.answered[code]]] = Source.GNN
        latency_us, mean_us = base.latency_us * factor, base.scheduled_us * factor
        return replace(base, latency_us=latency_us, mean_latency_us=mean_us, source=source)


@dataclass(frozen=True)
class NetworkAlone:
    """What the networks of a checkpoint of op tables answer, and nothing else.

    Attributes:
        whole: the same with the analytical model's answers.
    """

    whole: PretrainedPredictor

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """NaN where no network answers; hardware takes no time."""
        found = self.whole.predict(graph, cluster)
        hardware = graph.nodes["node_type"].isin([NodeType.DEVICE, NodeType.LINK]).to_numpy()
        known = (found.source == Source.GNN) | hardware  # [num_nodes]
        latency_us, mean_us = (np.where(known, us, np.nan) for us in (found.latency_us, found.scheduled_us))
        source = np.where(known, found.source, Source.UNCOVERED).astype(object)
        return replace(
            found, latency_us=latency_us, mean_latency_us=mean_us, source=source,
            uncovered_ops=uncovered_ops(graph, latency_us), alone=only(found.alone, known),
        )  # fmt: skip
