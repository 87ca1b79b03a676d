"""nodes.parquet: one row per node, with what was predicted, measured and by whom."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.schema import PREDICTION_COLUMNS


def nodes_table(answer: StepPrediction) -> pd.DataFrame:
    """[num_nodes] table with schema.PREDICTION_COLUMNS.

    `measured_latency_us` is the trace's own value, on the trace's hardware, whatever was predicted for.
    """
    nodes, prediction = answer.prediction.graph.nodes, answer.prediction
    columns = {
        "node_id": nodes["node_id"],
        "rank": nodes["rank"],
        "node_type": _text(nodes["node_type"]),
        "op_name": _text(nodes["op_name"]),
        "segment": _text(nodes["segment"]),
        "phase": _text(nodes["phase"]),
        "stream": nodes["stream"],
        "start_us": answer.schedule.start_us,
        "latency_us": prediction.latency_us,
        "mean_latency_us": prediction.scheduled_us,
        "latency_low_us": prediction.latency_low_us,
        "latency_high_us": prediction.latency_high_us,
        "measured_latency_us": nodes["latency_us"],
        "analytic_latency_us": prediction.analytic_latency_us,
        "source": pd.Series([str(s) for s in prediction.source], dtype="str"),
        "reason": pd.Series(prediction.reasons.tolist(), dtype="str"),
        "on_critical_path": np.asarray(answer.schedule.on_critical_path, dtype=bool),
        "critical_us": np.asarray(answer.critical_us, dtype=np.float64),
    }
    return pd.DataFrame({c.name: columns[c.name] for c in PREDICTION_COLUMNS})


def _text(column: pd.Series) -> pd.Series:
    """A category column as text; unknown stays unknown."""
    return column.astype(object).where(column.notna(), None).astype("str")
