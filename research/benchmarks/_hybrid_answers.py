"""Nodes of recorded steps with every answer next to them: the network's, the analytical model's and the blend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gnnperf.gnn import WORK, Step, node_kinds
from gnnperf.gnn.evaluation.metrics import gmae, is_measured
from gnnperf.predict.gnn import BlendedPredictor


def node_table(predictor: BlendedPredictor, steps: Sequence[Step]) -> pd.DataFrame:
    """Nodes with a latency of the isolated op. The network (gnn) answers for every node, whatever ground it has.

    Returns:
        Columns run, node (row of the step), kind, family, node_type, dtype, source, reason, known, weight; measured,
        gnn, analytic, hybrid in us.
    """
    return pd.concat([_of_step(predictor, step) for step in steps], ignore_index=True)


def _of_step(predictor: BlendedPredictor, step: Step) -> pd.DataFrame:
    base = predictor.network.analytic.predict(step.graph, step.cluster)
    given = predictor.network.given(step.graph, step.cluster, base)
    hybrid = predictor.predict(step.graph, step.cluster)
    table = pd.DataFrame(
        {
            "run": step.run,
            "node": np.arange(len(step.nodes)),
            "kind": node_kinds(step.nodes),
            "family": step.nodes["family"].astype(object).to_numpy(),
            "node_type": step.nodes["node_type"].astype(str).to_numpy(),
            "source": hybrid.source.astype(str),
            "dtype": step.nodes["dtype"].astype(object).to_numpy(),
            "reason": hybrid.reasons,
            "measured": _isolated_us(step),
            "gnn": given.latency_us[0],
            "analytic": base.latency_us,
            "hybrid": hybrid.latency_us,
            "known": given.known_op,
            "weight": given.trusted.weight,
        }
    )
    return table[is_measured(table["measured"].to_numpy())]


def _isolated_us(step: Step) -> np.ndarray:
    """[num_nodes] labels of isolated ops; NaN unknown or not learned."""
    result = np.full(len(step.nodes), np.nan)
    for node_type in WORK:
        store = step.data[node_type]
        result[store.node_id.numpy()] = (store.target.double().exp() * store.base_us).numpy()
    return result


def errors(table: pd.DataFrame, by_time: bool) -> dict[str, float]:
    """Answer -> GMAE over nodes that all three answer, all alike or weighted by what they took."""
    known = (table[["gnn", "analytic", "hybrid"]] > 0).all(axis=1)
    rows, answers = table[known], ("gnn", "analytic", "hybrid")
    measured_us = rows["measured"].to_numpy()
    weights = measured_us if by_time else None
    return {name: gmae(rows[name].to_numpy(), measured_us, weights) for name in answers}
