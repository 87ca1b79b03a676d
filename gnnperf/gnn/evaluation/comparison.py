"""Answers side by side: every metric, over all nodes and by node type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import pandas as pd

from gnnperf.gnn.evaluation.metrics import gmae_interval, is_measured, summarize

ALL = "all"


def compare(
    answers: Mapping[str, np.ndarray], measured_us: np.ndarray, node_types: np.ndarray, runs: np.ndarray
) -> pd.DataFrame:
    """One row per node type ("all" first) and answer.

    Args:
        answers: name -> [num_nodes] predicted latency, NaN where there is none.
        measured_us: [num_nodes] measured latency, NaN unknown.
        node_types: [num_nodes] NodeType values.
        runs: [num_nodes] run names, for the bootstrap.

    Returns:
        Columns node_type, answer, the fields of ErrorSummary, gmae_low, gmae_high (95 % over runs).
    """
    labeled = is_measured(measured_us)
    groups = [ALL, *sorted(set(node_types[labeled].tolist()))]
    rows = [
        _row(group, name, answer[use], measured_us[use], runs[use])
        for group in groups
        for use in [labeled & ((node_types == group) | (group == ALL))]
        for name, answer in answers.items()
    ]
    return pd.DataFrame(rows)


def _row(group: str, name: str, predicted: np.ndarray, measured: np.ndarray, runs: np.ndarray) -> dict[str, object]:
    low, high = gmae_interval(predicted, measured, runs)
    summary = asdict(summarize(predicted, measured))
    return {"node_type": group, "answer": name, **summary, "gmae_low": low, "gmae_high": high}
