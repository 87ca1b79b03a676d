"""Op-table checkpoints in predict.py and train.py: a Predictor, and initial weights of a training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch

from gnnperf.analytic import AnalyticPredictor, has_forms
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.core import NodeType, Relation, Source
from gnnperf.gnn.data.features import REVERSE_PREFIX
from gnnperf.gnn.data.prepare import Earlier
from gnnperf.gnn.finetune import Start
from gnnperf.gnn.models.stored import StoredFile
from gnnperf.graph import ExecutionGraph, Prediction, Predictor, only, uncovered_ops
from gnnperf.hardware import ClusterSpec, DeviceSpec
from research.pretraining.calls import KIND, CallRows, rows_of_calls
from research.pretraining.encode import encode_calls
from research.pretraining.op_checkpoint import FORMAT, OpCheckpoint, OpNetwork, op_checkpoint_from

# Op calls of traces answered by networks of op tables: by how much the closed form's latency is corrected.
#
# A correction counts as far as the measuring method could see the device: behind the wait for a launch nothing was
# learned, and the closed form stands.


@dataclass(frozen=True)
class Corrections:
    """Of [n] calls.

    Attributes:
        log_factor: what is added to log us; 0 where nothing answers.
        answered: bool, whether a network answers.
    """

    log_factor: np.ndarray
    answered: np.ndarray


def corrections(
    checkpoint: OpCheckpoint, calls: Sequence[KernelCall], base_us: np.ndarray, device: DeviceSpec
) -> Corrections:
    """What the networks say about distinct calls on a device.

    Args:
        checkpoint: who answers for what.
        calls: [n].
        base_us: [n] the analytical answer; NaN: it has none.
        device: requested.
    """
    result = Corrections(np.zeros(len(calls)), np.zeros(len(calls), bool))
    if not has_forms(device) or device.measured:
        return result
    requested = rows_of_calls(calls, device)
    known = base_us[requested.places] > 0  # [n]; NaN is not
    kinds = requested.rows[KIND].astype(str).tolist()
    answers = {kind: checkpoint.answer_of(kind) for kind in set(kinds)}
    own = np.array([answers[kind].is_own(device) for kind in kinds], bool)
    for network, here, shares in (
        (checkpoint.own, own, {kind: one.own_share for kind, one in answers.items()}),
        (checkpoint.others, ~own, {kind: one.others_share for kind, one in answers.items()}),
    ):
        share = np.array([shares[kind] for kind in kinds], float)
        rows = np.flatnonzero(known & here & (share > 0))
        if len(rows):
            part = CallRows(requested.rows.iloc[rows].reset_index(drop=True), requested.places[rows])
            result.log_factor[part.places] = share[rows] * _seen_residual(network, part, base_us, device)
            result.answered[part.places] = True
    return result


def _seen_residual(network: OpNetwork, requested: CallRows, base_us: np.ndarray, device: DeviceSpec) -> np.ndarray:
    """[n] corrections in log space, each as far as its method saw the device."""
    base = base_us[requested.places]
    rows = requested.rows.assign(latency_us=np.nan, device=_table_name(network, device))
    encoded = encode_calls(rows, base, device, network.vocabulary, network.observation)
    seen = encoded.observed.seen_share(torch.from_numpy(np.log(base)))
    return np.asarray((network.residual(encoded) * seen).numpy())


def _table_name(network: OpNetwork, device: DeviceSpec) -> str:
    """The name that waits go by: as a table has it, where it is one of a table."""
    tabled = {name for _, name, _ in network.observation.shares}
    return next((alias for alias in device.aliases if alias in tabled), device.name)


ANSWERING = "heads.compute.last."  # corrections of three ops do not hold for all kernels of a trace
OP_RELATIONS = (f"{REVERSE_PREFIX}{Relation.RUNS_ON}",)  # all that a graph of one op has


@dataclass(frozen=True)
class OpTables:
    """The entry point "op-tables" of gnnperf.checkpoint_formats (gnnperf.gnn.checkpoint_formats.ExternalCheckpoint).

    Attributes:
        checkpoint: what the file holds.
    """

    checkpoint: OpCheckpoint
    format: ClassVar[str] = FORMAT

    @classmethod
    def load(cls, stored: StoredFile) -> OpTables:
        """The checkpoint in a file of this format."""
        return cls(op_checkpoint_from(stored))

    @property
    def sha256(self) -> str:
        return self.checkpoint.sha256

    def predictor(self, mode: str) -> Predictor:
        """The analytical model, in other modes with the corrections of the networks; in mode=gnn only these."""
        if mode == "analytic":
            return AnalyticPredictor()
        whole = PretrainedPredictor(self.checkpoint)
        return NetworkOnly(whole) if mode == "gnn" else whole

    def start(self, where: str) -> Start:
        """The network for GPUs that trained: it knows sizes best, and a GPU that is traced is one that trains.

        What it knows of kernels and devices stays. Its predictions start from the base, because its corrections are of
        the few ops that tables have.
        """
        one = self.checkpoint.own
        earlier = Earlier(one.vocabulary, one.normalizer, "gpu", True, None)
        weights = {name: torch.zeros_like(w) if name.startswith(ANSWERING) else w for name, w in one.weights.items()}
        return Start(one.model, weights, earlier, OP_RELATIONS, where, self.sha256)


@dataclass(frozen=True)
class PretrainedPredictor:
    """Predicts every node as the analytical model does, and corrects ops of the tables by a network.

    Attributes:
        checkpoint: of op tables.
        analytic: the analytical model.
    """

    checkpoint: OpCheckpoint
    analytic: Predictor = field(default_factory=AnalyticPredictor)

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """The analytical prediction; latency and source of nodes that a network corrects are its own."""
        base = self.analytic.predict(graph, cluster)
        rows = np.flatnonzero((graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy())
        if cluster.device.kind != "gpu" or not len(rows):
            return base
        calls, code = distinct_calls(graph.nodes.iloc[rows])
        if rows_of_calls(calls, cluster.device).rows.empty:
            return base
        siblings = np.maximum(graph.nodes["num_siblings"].to_numpy(float)[rows], 1.0)
        call_us = np.full(len(calls), np.nan)
        call_us[code] = base.latency_us[rows] * siblings  # kernels of a call share its answer
        result = corrections(self.checkpoint, calls, call_us, cluster.device)
        factor, source = np.ones(graph.num_nodes), base.source.copy()
        factor[rows] = np.exp(result.log_factor[code])
        source[rows[result.answered[code]]] = Source.GNN
        latency_us, mean_us = base.latency_us * factor, base.scheduled_us * factor
        return replace(base, latency_us=latency_us, mean_latency_us=mean_us, source=source)


@dataclass(frozen=True)
class NetworkOnly:
    """What the networks of a checkpoint of op tables answer, and nothing else.

    Attributes:
        whole: the same with the analytical model's answers.
    """

    whole: PretrainedPredictor

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """NaN where no network answers; hardware takes no time."""
        result = self.whole.predict(graph, cluster)
        hardware = graph.nodes["node_type"].isin([NodeType.DEVICE, NodeType.LINK]).to_numpy()
        known = (result.source == Source.GNN) | hardware  # [num_nodes]
        latency_us, mean_us = (np.where(known, us, np.nan) for us in (result.latency_us, result.scheduled_us))
        source = np.where(known, result.source, Source.UNCOVERED).astype(object)
        return replace(
            result, latency_us=latency_us, mean_latency_us=mean_us, source=source,
            uncovered_ops=uncovered_ops(graph, latency_us), isolated=only(result.isolated, known),
        )  # fmt: skip
