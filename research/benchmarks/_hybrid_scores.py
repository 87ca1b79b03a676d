"""Scores that say how unlike training a node is, with the name test switched off, and what they tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from gnnperf.core import NodeType
from gnnperf.gnn import WORK, Step, features, read_states
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.gnn import GnnPredictor
from gnnperf.predict.whatif import read_edits
from gnnperf.whatif import apply
from research.benchmarks._hybrid_energy import Energy

KEPT = 0.95  # of nodes like training
GROWN = 64  # times the batch of training
SCORES = ("range and dtype", "energy", "energy, bounded", "itself", "among neighbors", "all")


def scores(network: GnnPredictor, energies: Mapping[str, Energy], graph: ExecutionGraph, cluster: ClusterSpec
           ) -> pd.DataFrame:  # fmt: skip
    """One row per node of the graph; columns SCORES, larger: less like training. Hardware has none.

    "all" is what the gate goes by but for names: states, numbers beyond the range, dtypes.
    """
    known = network.checkpoint
    base = network.analytic.predict(graph, cluster)
    data = features(graph, cluster, base, known.vocabulary, known.floors)
    states = read_states(network.network, known.normalizer.apply(data))
    trusted = known.trust.of(graph.nodes, cluster.device.name, data, known.normalizer, states)
    table = pd.DataFrame(np.nan, index=range(graph.num_nodes), columns=list(SCORES))
    for node_type in WORK:
        rows = data[node_type].node_id.numpy()
        for name, energy in energies.items():
            table.loc[rows, name] = energy.above(node_type, states.around[node_type]).double().numpy()
        for name, ood_distance in (("itself", known.trust.own), ("among neighbors", known.trust.around)):
            given = (states.own if name == "itself" else states.around)[node_type]
            table.loc[rows, name] = ood_distance.unlike(node_type, given).double().numpy()
    outside = np.where(trusted.out_of_range > 0, 1.0 + trusted.out_of_range, 0.0)
    table["range and dtype"] = np.where(trusted.unseen_dtype, np.inf, outside)
    table["all"] = np.maximum(trusted.unlike, table["range and dtype"])
    return table


def renamed(graph: ExecutionGraph) -> ExecutionGraph:
    """Every op under a name that nothing has seen; nothing else changes."""
    names = graph.nodes["op_name"].astype(object)
    new = names.where(names.isna(), "renamed::" + names.astype(str)).astype("category")
    hardware = graph.nodes["node_type"].isin([NodeType.DEVICE, NodeType.LINK])
    return replace(
        graph, nodes=graph.nodes.assign(op_name=new.astype(object).where(~hardware, names).astype("category"))
    )


def grown(step: Step) -> tuple[ExecutionGraph, np.ndarray]:
    """The step with a batch GROWN times as large, and which nodes that touches."""
    edited = apply(step.graph, read_edits([{"batch": {"factor": GROWN}}]))
    return edited.graph, edited.touched


def false_positives(like: pd.Series, unlike: pd.Series) -> float:
    """Share of unlike nodes that pass where KEPT of the like ones do; ties do not pass."""
    threshold = float(np.quantile(like, KEPT, method="higher"))
    return float((unlike <= threshold).mean())


def error_coverage(score: np.ndarray, log_error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[n] share of nodes answered, least score first, and [n] mean |log error| among them."""
    order = np.argsort(score, kind="stable")
    count = np.arange(1, len(order) + 1)
    return count / len(order), np.cumsum(log_error[order]) / count


def pooled(network: GnnPredictor, energies: Mapping[str, Energy], steps: Sequence[Step]) -> pd.DataFrame:
    """Scores of all nodes of these steps, in their order."""
    with torch.no_grad():
        return pd.concat([scores(network, energies, s.graph, s.cluster) for s in steps], ignore_index=True)
