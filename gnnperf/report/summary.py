"""Tables that every rendering of a prediction shares, made of nodes.parquet alone: by op, type, phase, family, rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gnnperf.core import WORK_TYPES, NodeType, OpFamily, Phase, Source
from gnnperf.predict import StepPrediction
from gnnperf.report.nodes_parquet import nodes_table

UNNAMED = "(unnamed)"
FAMILY_OF = {NodeType.HOST: "host, all families", NodeType.COMM: "arrival and exit"}  # of these a family says little
CALL = ["op_name", "node_type", "shapes", "dtype", "message_bytes", "bound", "source"]  # what is one row of top ops
HAVE_SHAPES = (NodeType.COMPUTE, NodeType.MEMORY)


def work_table(nodes: pd.DataFrame) -> pd.DataFrame:
    """The rows of `nodes_table` that are work, with an op name, a family and a shape to group by.

    `predicted_us` and `measured_us` are latencies; `shapes` is None where it does not decide how long a node takes.
    """
    is_work = nodes["node_type"].astype(object).isin([str(t) for t in WORK_TYPES])
    work = nodes[is_work].reset_index(drop=True)
    kind = work["node_type"].astype(object)
    shaped = kind.isin([str(t) for t in HAVE_SHAPES])
    return work.assign(
        op_name=work["op_name"].fillna(work["event_name"]).fillna(UNNAMED),
        family=kind.map({str(t): name for t, name in FAMILY_OF.items()}).fillna(work["family"]),
        shapes=work["input_dims"].where(shaped),
        dtype=work["dtype"].where(shaped),
        message_bytes=work["message_bytes"].where(kind == NodeType.COLLECTIVE),
        predicted_us=work["latency_us"],
        measured_us=work["measured_latency_us"],
        num_uncovered=work["latency_us"].isna().astype(np.int64),
    )


def top_ops(answer: StepPrediction, num_ops: int = 10) -> pd.DataFrame:
    """Ops by their time on the critical path, then by their summed latency over ranks."""
    return leading(totals(work_table(nodes_table(answer)), ["op_name", "node_type"]), num_ops)


def top_calls(work: pd.DataFrame, num_calls: int) -> pd.DataFrame:
    """Ops with their shapes, likewise; each_us, low_us, high_us and each_measured_us are medians over their nodes."""
    return _with_medians(work, leading(totals(work, CALL), num_calls))


def longest_calls(work: pd.DataFrame, num_calls: int) -> pd.DataFrame:
    """The same for work on devices and links, most predicted time over all ranks first."""
    there = work[work["node_type"].isin([str(t) for t in WORK_TYPES if t not in FAMILY_OF])]
    found = totals(there, CALL).sort_values("predicted_us", ascending=False, kind="stable")
    return _with_medians(there, found.head(num_calls).reset_index(drop=True))


def _with_medians(work: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    chosen = work.merge(calls[CALL].assign(call=np.arange(len(calls))), on=CALL)
    medians = chosen.groupby("call")[["predicted_us", "latency_low_us", "latency_high_us", "measured_us"]].median()
    names = ("each_us", "low_us", "high_us", "each_measured_us")
    return calls.join(medians.set_axis(names, axis=1))


def leading(groups: pd.DataFrame, num_groups: int) -> pd.DataFrame:
    """The groups with most time on the critical path; between equals, most predicted."""
    keys = ["critical_us", "predicted_us", "op_name"]
    return (
        groups.sort_values(keys, ascending=[False, False, True], kind="stable").head(num_groups).reset_index(drop=True)
    )


def by_node_type(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per node type that occurs, in the vocabulary's order."""
    return _in_order(totals(work, ["node_type"]), "node_type", [str(t) for t in WORK_TYPES])


def by_phase(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per phase that occurs, in the order of a step."""
    return _in_order(
        totals(work.assign(phase=work["phase"].fillna(UNNAMED)), ["phase"]), "phase", list(map(str, Phase))
    )


def by_family(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per op family, the longest on the critical path first; host work is one family."""
    found = totals(work.assign(family=work["family"].fillna(str(OpFamily.UNKNOWN))), ["family"])
    return found.sort_values(["critical_us", "predicted_us"], ascending=False, kind="stable").reset_index(drop=True)


def by_rank(work: pd.DataFrame) -> pd.DataFrame:
    """Totals per rank; transfers, which belong to several ranks, come last as rank -1."""
    found = totals(work, ["rank"])
    return found.iloc[np.lexsort((found["rank"], found["rank"] < 0))].reset_index(drop=True)


def num_nodes_by_source(answer: StepPrediction) -> dict[str, int]:
    """Number of work nodes per source, best source first; sources that do not occur are left out."""
    is_work = answer.prediction.graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()
    counts = pd.Series([str(s) for s in answer.prediction.source[is_work]]).value_counts()
    return {str(s): int(counts[str(s)]) for s in Source if str(s) in counts.index}


def num_nodes_by_reason(answer: StepPrediction) -> dict[str, dict[str, int]]:
    """Source -> why -> number of work nodes, most frequent first."""
    work = answer.prediction.graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()  # [num_nodes]
    source = answer.prediction.source[work].astype(str)
    table = pd.DataFrame({"source": source, "reason": answer.prediction.reasons[work]})
    counts = table.value_counts().reset_index().sort_values(["count", "reason"], ascending=[False, True])
    return {str(s): dict(zip(rows["reason"], map(int, rows["count"]), strict=True))
            for s in Source if len(rows := counts[counts["source"] == str(s)])}  # fmt: skip


def totals(work: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Node count and summed times per group; a sum without a single known value is NaN, not 0."""
    groups = work.groupby(keys, sort=False, observed=True, dropna=False)
    return pd.DataFrame(
        {
            "num_nodes": groups.size(),
            "num_uncovered": groups["num_uncovered"].sum(),
            "predicted_us": groups["predicted_us"].sum(min_count=1),
            "measured_us": groups["measured_us"].sum(min_count=1),
            "critical_us": groups["critical_us"].sum(),
        }
    ).reset_index()


def _in_order(found: pd.DataFrame, key: str, words: Sequence[str]) -> pd.DataFrame:
    """Rows in the order of `words`, others behind them."""
    place = {word: number for number, word in enumerate(words)}
    return found.sort_values(key, key=lambda column: column.map(lambda w: place.get(str(w), len(place)))).reset_index(
        drop=True
    )
