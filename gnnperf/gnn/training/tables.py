"""A trained network node by node: where its errors are, and a sample of its answers to look at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gnnperf.gnn.data.prepare import Step
from gnnperf.gnn.evaluation.metrics import is_measured, summarize
from gnnperf.gnn.models.gnn import WORK, TypedGNN
from gnnperf.gnn.training.evaluate import predicted_us

DESCRIBED = ("node_type", "family", "op_name", "phase", "segment", "dtype", "input_dims")
MAX_ROWS = 2000  # of a table of predictions, however many nodes there are


def node_answers(network: TypedGNN, steps: Sequence[Step]) -> pd.DataFrame:
    """One row per node with a measured latency and an answer.

    Returns:
        Columns run, node_id, those of DESCRIBED, measured_us, predicted_us, base_us (what the network corrects).
    """
    found = [_of_step(network, step) for step in steps]
    nodes = pd.concat(found, ignore_index=True)
    use = is_measured(nodes["measured_us"].to_numpy()) & (nodes["predicted_us"].to_numpy() > 0)
    return nodes[use].reset_index(drop=True)


def _of_step(network: TypedGNN, step: Step) -> pd.DataFrame:
    answer_us, parts = predicted_us(network, step), []
    for node_type in WORK:
        store = step.data[node_type]
        rows = store.node_id.numpy()
        part = step.nodes.iloc[rows][[*DESCRIBED]].astype(object)
        numbers = {
            "measured_us": store.latency_us.numpy(),
            "predicted_us": answer_us[rows],
            "base_us": store.base_us.numpy(),
        }
        parts.append(part.assign(run=step.run, node_id=rows, **numbers))
    nodes = pd.concat(parts, ignore_index=True)
    return nodes[["run", "node_id", *DESCRIBED, "measured_us", "predicted_us", "base_us"]]


def errors_by(nodes: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """One row per group of nodes, the longest measured time first.

    Args:
        nodes: what node_answers gives.
        keys: columns to group by.

    Returns:
        Columns: the keys, nodes, time_share (of the measured time of all nodes), gmae, median_ape, bias, total_bias of
        the network (metrics.ErrorSummary) and base_gmae.
    """
    total_us = nodes["measured_us"].sum()
    rows = [
        {**dict(zip(keys, values, strict=True)), **_errors(group), "time_share": group["measured_us"].sum() / total_us}
        for values, group in nodes.groupby(list(keys), dropna=False, sort=True)
    ]
    table = pd.DataFrame(rows).sort_values("time_share", ascending=False, kind="stable", ignore_index=True)
    return table[[*keys, "nodes", "time_share", "gmae", "base_gmae", "median_ape", "bias", "total_bias"]]


def _errors(group: pd.DataFrame) -> dict[str, float]:
    measured_us, predicted_us, base_us = (group[f"{name}_us"].to_numpy() for name in ("measured", "predicted", "base"))
    network = summarize(predicted_us, measured_us)
    return {
        "nodes": network.num_nodes,
        "gmae": network.gmae,
        "base_gmae": summarize(base_us, measured_us).gmae,
        "median_ape": network.median_ape,
        "bias": network.bias,
        "total_bias": network.total_bias,
    }


def sampled(nodes: pd.DataFrame, max_rows: int = MAX_ROWS, seed: int = 0) -> pd.DataFrame:
    """At most `max_rows` of these nodes, every one as likely, in their order, with the error of each."""
    count = min(max_rows, len(nodes))
    rows = np.sort(np.random.default_rng(seed).choice(len(nodes), count, replace=False))
    sample = nodes.iloc[rows].reset_index(drop=True)
    return sample.assign(log_error=np.log(sample["predicted_us"] / sample["measured_us"]))
