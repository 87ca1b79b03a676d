"""Latencies of an edited recording: what was measured where it holds, elsewhere a predictor held to the measurements.

measured     the recording has calls with these shapes and bytes     their median
calibrated   it has calls of this op with others                     predicted x the op's median(measured / predicted)
predicted    it has none                                             predicted
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.plan.edit import Edited
from gnnperf.schema import NodeType

OP = ["node_type", "op_name", "collective", "phase"]
CALL = [*OP, "input_dims", "bytes", "message_bytes"]


def anchored(
    edited: Edited, recorded: ExecutionGraph, told_before_us: np.ndarray, told_after_us: np.ndarray
) -> ExecutionGraph:
    """The edited graph with a latency for what the edit left without one.

    Args:
        edited: of `recorded`; latencies that it left are kept.
        recorded: with measured latencies.
        told_before_us: [num_nodes of recorded] what a predictor says of it.
        told_after_us: [num_nodes of edited] what the same predictor says of the edited graph.
    """
    nodes, known = edited.graph.nodes, recorded.nodes
    works = (known["node_type"] != NodeType.HOST) & known["latency_us"].gt(0) & (told_before_us > 0)
    measured = known.loc[works, [*CALL, "latency_us"]].astype(dict.fromkeys(CALL, object))
    measured = measured.assign(ratio=measured["latency_us"] / told_before_us[works.to_numpy()])
    open_ = nodes["latency_us"].isna().to_numpy() & edited.touched
    asked = nodes.loc[open_, CALL].astype(dict.fromkeys(CALL, object))
    same_us = _matched(asked, measured, CALL, "latency_us")
    ratio = _matched(asked, measured, OP, "ratio")
    told_us = told_after_us[open_]
    answer_us = np.where(np.isnan(same_us), told_us * np.where(np.isnan(ratio), 1.0, ratio), same_us)
    latency_us = nodes["latency_us"].to_numpy(copy=True)
    latency_us[open_] = answer_us
    return _with(edited.graph, latency_us)


def _matched(asked: pd.DataFrame, measured: pd.DataFrame, keys: list[str], value: str) -> np.ndarray:
    """[num_asked] median of the measured values with the same keys; NaN none."""
    medians = measured.groupby(keys, dropna=False)[value].median().rename("median").reset_index()
    joined = asked[keys].merge(medians, on=keys, how="left")
    return joined["median"].to_numpy(np.float64)


def _with(graph: ExecutionGraph, latency_us: np.ndarray) -> ExecutionGraph:
    return ExecutionGraph(**{**graph.__dict__, "nodes": graph.nodes.assign(latency_us=latency_us)})
