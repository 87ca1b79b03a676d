"""A step on another machine: the network corrects what the trace measured on its own.

latency = measured in the trace x speed factor x exp(residual)

A node that an edit changed starts from the analytical prediction x mean ratio of its op.

The checkpoint is of `train.py data.path=RUNS_THERE data.source_path=SAME_RUNS_HERE`.
"""

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import InputError, Source
from gnnperf.gnn import Checkpoint, RunGraph, SpeedFactors, aligned_us
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.gnn import GnnPredictor
from gnnperf.whatif import Edited

MOVED = "measured in this trace, corrected by the network for the other machine"
IMPUTED = "changed by an edit: analytical model and network, with the ratio that this trace has to the model"


@dataclass(frozen=True)
class TransferPredictor:
    """Latencies on the machine that the network was trained on, from those of a trace of another one."""

    network: GnnPredictor  # trained with a source machine
    factors: SpeedFactors  # expected latency there / on the trace's machine
    source_us: np.ndarray  # [num_nodes of the step] measured in the trace, NaN unknown
    edited: Edited | None = None  # the edit whose graph is predicted; None: the step itself

    def on_edit(self, edited: Edited) -> "TransferPredictor":
        """The predictor for an edit of the step."""
        return replace(self, edited=edited)

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Latency of every node that the network or its base covers; NaN at other nodes.

        Raises InputError: an edge or link class that the network does not know.
        """
        source_us = self.source_us  # [num_nodes] measured in the trace; NaN: never, or changed by the edit
        if self.edited is not None:
            source_us = np.where(self.edited.touched, np.nan, source_us[self.edited.came_from])
        base = self.network.analytic.predict(graph, cluster)
        given = self.network.given(graph, cluster, base, self.factors.moved_us(graph.nodes, source_us))
        known = np.isfinite(source_us)  # [num_nodes]
        covered = known | given.known_op | np.isfinite(base.latency_us)
        latency_us, mean_us = np.where(covered, given.latency_us, np.nan)  # [num_nodes] each
        source = np.where(np.isfinite(latency_us), Source.GNN, Source.UNCOVERED).astype(object)
        return base.with_latencies(latency_us, source, mean_us, np.where(known, MOVED, IMPUTED).astype(object))


def transfer_of(
    checkpoint: Checkpoint, graph: ExecutionGraph, step: ExecutionGraph, traced: ClusterSpec
) -> "TransferPredictor":
    """The predictor of a step of a trace; measurements are lower quartiles over its steps, without contention.

    Raises InputError: the checkpoint was trained without a source machine.
    """
    if checkpoint.speed_factors is None:
        raise InputError(
            "the checkpoint was trained without a source machine", where="transfer",
            remedy="train with data.path=RUNS_ON_THE_OTHER_MACHINE data.source_path=THE_SAME_RUNS_ON_THIS_ONE, "
            "or pass it as checkpoint=",
        )  # fmt: skip
    source_us = aligned_us(step, RunGraph(graph.name, graph, traced))
    return TransferPredictor(GnnPredictor(checkpoint), checkpoint.speed_factors, source_us)
