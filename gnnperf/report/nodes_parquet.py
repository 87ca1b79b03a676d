"""nodes.parquet: one row per node, with what was predicted, measured and by whom. The report is made of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import PREDICTION_COLUMNS, Relation, Segment
from gnnperf.predict import StepPrediction
from gnnperf.report.slices import step_start_us


def nodes_table(answer: StepPrediction) -> pd.DataFrame:
    """[num_nodes] table with schema.PREDICTION_COLUMNS.

    `measured_latency_us` is the trace's own value, on the trace's hardware, whatever was predicted for.
    """
    columns = {**_told(answer.prediction.graph.nodes), **_predicted(answer), **_measured(answer)}
    return pd.DataFrame({c.name: columns[c.name] for c in PREDICTION_COLUMNS})


def _told(nodes: pd.DataFrame) -> dict[str, pd.Series]:
    """What is known before any prediction."""
    texts = ("node_type", "op_name", "event_name", "segment", "phase", "family", "dtype", "input_dims")
    numbers = ("node_id", "rank", "message_bytes", "thread", "stream")
    works = {name: nodes[name].astype("float64") for name in ("flops", "bytes")}
    return {**{name: _text(nodes[name]) for name in texts}, **{name: nodes[name] for name in numbers}, **works}


def _predicted(answer: StepPrediction) -> dict[str, pd.Series | np.ndarray]:
    prediction = answer.prediction
    bound = np.full(prediction.graph.num_nodes, None, dtype=object) if answer.bound is None else answer.bound
    return {
        "transfer": _transfer(answer),
        "start_us": answer.schedule.start_us,
        "latency_us": prediction.latency_us,
        "mean_latency_us": prediction.scheduled_us,
        "latency_low_us": prediction.latency_low_us,
        "latency_high_us": prediction.latency_high_us,
        "analytic_latency_us": prediction.analytic_latency_us,
        "bound": _text(pd.Series(pd.Categorical(bound))),
        "source": pd.Series([str(s) for s in prediction.source], dtype="str"),
        "reason": pd.Series(prediction.reasons.tolist(), dtype="str"),
        "on_critical_path": np.asarray(answer.schedule.on_critical_path, dtype=bool),
        "critical_us": np.asarray(answer.critical_us, dtype=np.float64),
    }


def _measured(answer: StepPrediction) -> dict[str, pd.Series]:
    nodes = answer.prediction.graph.nodes
    return {
        "measured_start_us": nodes["start_us"] - step_start_us(answer),
        "measured_latency_us": nodes["latency_us"],
        "measured_wait_us": nodes["blocked_us"],
    }


def _transfer(answer: StepPrediction) -> np.ndarray:
    """[num_nodes] the transfer that an arrival joins or that releases an exit; -1 elsewhere."""
    graph = answer.prediction.graph
    found = np.full(graph.num_nodes, -1, dtype=np.int64)
    relation = graph.edges["relation"]
    src, dst = graph.edges["src"].to_numpy(), graph.edges["dst"].to_numpy()
    joins, releases = (relation == Relation.JOINS).to_numpy(), (relation == Relation.RELEASES).to_numpy()
    exits = releases & (graph.nodes["segment"] == Segment.EXIT).to_numpy()[dst]
    found[src[joins]] = dst[joins]
    found[dst[exits]] = src[exits]
    return found


def _text(column: pd.Series) -> pd.Series:
    """A category column as text, each word once; unknown stays unknown."""
    words = np.array([*map(str, column.cat.categories), None], dtype=object)  # the last one is that of code -1
    return pd.Series(words[column.cat.codes.to_numpy()], index=column.index).astype("str")
