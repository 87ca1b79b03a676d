"""Tables that every rendering of a prediction shares: by op, by node type, by rank."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.schema import WORK_TYPES, Source

UNNAMED = "(unnamed)"


def work_table(answer: StepPrediction) -> pd.DataFrame:
    """One row per node that is work: names, predicted, measured and critical time, whether it is covered."""
    nodes, prediction = answer.prediction.graph.nodes, answer.prediction
    is_work = nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()  # [num_nodes]
    op_name = nodes["op_name"].astype(object).fillna(nodes["event_name"].astype(object)).fillna(UNNAMED)
    table = pd.DataFrame(
        {
            "node_id": nodes["node_id"],
            "rank": nodes["rank"],
            "node_type": nodes["node_type"].astype(str),
            "op_name": op_name.astype(str),
            "predicted_us": prediction.latency_us,
            "measured_us": nodes["latency_us"],
            "critical_us": answer.critical_us,
            "source": [str(s) for s in prediction.source],
            "num_uncovered": np.isnan(prediction.latency_us).astype(np.int64),
        }
    )
    return table[is_work].reset_index(drop=True)


def top_ops(answer: StepPrediction, num_ops: int = 10) -> pd.DataFrame:
    """Ops by their time on the critical path, then by their summed latency over ranks."""
    grouped = _totals(work_table(answer), ["op_name", "node_type"])
    ordered = grouped.sort_values(
        ["critical_us", "predicted_us", "op_name"], ascending=[False, False, True], kind="stable"
    )
    return ordered.head(num_ops).reset_index(drop=True)


def by_node_type(answer: StepPrediction) -> pd.DataFrame:
    """Totals per node type that occurs, in the vocabulary's order."""
    totals = _totals(work_table(answer), ["node_type"]).set_index("node_type")
    return totals.loc[[str(t) for t in WORK_TYPES if str(t) in totals.index]].reset_index()


def by_rank(answer: StepPrediction) -> pd.DataFrame:
    """Predicted completion and summed latency of host and device work, one row per traced rank."""
    work = work_table(answer)
    work["side"] = np.where(work["node_type"] == "host", "host_us", "device_us")
    busy = work.pivot_table(index="rank", columns="side", values="predicted_us", aggfunc="sum", fill_value=0.0)
    frame = pd.DataFrame(
        {"rank": list(answer.rank_step_time_us), "completion_us": list(answer.rank_step_time_us.values())}
    )
    return frame.join(busy.reindex(columns=["host_us", "device_us"], fill_value=0.0), on="rank")


def num_nodes_by_source(answer: StepPrediction) -> dict[str, int]:
    """Number of work nodes per source, best source first; sources that do not occur are left out."""
    counts = work_table(answer)["source"].value_counts()
    return {str(s): int(counts[str(s)]) for s in Source if str(s) in counts.index}


def num_nodes_by_reason(answer: StepPrediction) -> dict[str, dict[str, int]]:
    """Source -> why -> number of work nodes, most frequent first."""
    work = answer.prediction.graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()  # [num_nodes]
    source = answer.prediction.source[work].astype(str)
    table = pd.DataFrame({"source": source, "reason": answer.prediction.reasons[work]})
    counts = table.value_counts().reset_index().sort_values(["count", "reason"], ascending=[False, True])
    return {str(s): dict(zip(rows["reason"], map(int, rows["count"]), strict=True))
            for s in Source if len(rows := counts[counts["source"] == str(s)])}  # fmt: skip


def _totals(work: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Node count and summed times per group; a sum without a single known value is NaN, not 0."""
    groups = work.groupby(keys, sort=False, observed=True)
    return pd.DataFrame(
        {
            "num_nodes": groups.size(),
            "num_uncovered": groups["num_uncovered"].sum(),
            "predicted_us": groups["predicted_us"].sum(min_count=1),
            "measured_us": groups["measured_us"].sum(min_count=1),
            "critical_us": groups["critical_us"].sum(),
        }
    ).reset_index()
