"""Latencies of an edited recording: what was measured where it holds, elsewhere a predictor held to the measurements.

measured     the recording has calls with these shapes and bytes     their median
calibrated   it has calls of this op with others                     predicted x measured / predicted of near ones
predicted    it has none                                             predicted

Near are calls that move about as much, from memory of about the same size: what a cache holds, it answers faster, and
what a predictor is off for a large table it is off for half of it. Recorded calls weigh exp(-d^2 / 2), d the distance
in factors of two (a Nadaraya-Watson mean of log ratios).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.generate import parse, tensors
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited

OP = ["node_type", "op_name", "collective", "phase"]
CALL = [*OP, "input_dims", "bytes", "message_bytes"]
FAR = 1e-6  # weight of calls of whatever size: where none is near, all count alike


def calibrated_to_trace(
    edited: Edited, recorded: ExecutionGraph, predicted_before_us: np.ndarray, predicted_after_us: np.ndarray
) -> ExecutionGraph:
    """The edited graph with a latency for what the edit left without one.

    Args:
        edited: of `recorded`; latencies that it left are kept.
        recorded: with measured latencies.
        predicted_before_us: [num_nodes of recorded] what a predictor says of it.
        predicted_after_us: [num_nodes of edited] what the same predictor says of the edited graph.
    """
    nodes, known = edited.graph.nodes, recorded.nodes
    works = (known["node_type"] != NodeType.HOST) & known["latency_us"].gt(0) & (predicted_before_us > 0)
    measured = known.loc[works, [*CALL, "latency_us"]].astype(dict.fromkeys(CALL, object))
    measured = measured.assign(log_ratio=np.log(measured["latency_us"] / predicted_before_us[works.to_numpy()]))
    calls = measured.groupby(CALL, dropna=False)[["latency_us", "log_ratio"]].median().reset_index()
    open_ = nodes["latency_us"].isna().to_numpy() & edited.touched
    requested = nodes.loc[open_, CALL].astype(dict.fromkeys(CALL, object))
    same_us = requested.merge(calls, on=CALL, how="left")["latency_us"].to_numpy(np.float64)
    predicted_us = predicted_after_us[open_] * np.exp(_nearby(requested, calls))
    latency_us = nodes["latency_us"].to_numpy(copy=True)
    latency_us[open_] = np.where(np.isnan(same_us), predicted_us, same_us)
    return ExecutionGraph(**{**edited.graph.__dict__, "nodes": nodes.assign(latency_us=latency_us)})


def _nearby(requested: pd.DataFrame, calls: pd.DataFrame) -> np.ndarray:
    """[num_asked] log(measured / predicted) of the op's calls that are near in size; 0 where it has none."""
    result = np.zeros(len(requested))
    sizes, known = _sizes(requested), _sizes(calls)
    kind_of_call, requested_kind = _kinds(calls, requested)
    for kind in np.intersect1d(kind_of_call, requested_kind):
        others, at = np.flatnonzero(kind_of_call == kind), np.flatnonzero(requested_kind == kind)
        apart = sizes[at][:, None, :] - known[others][None, :, :]  # [requested, calls, sizes]
        weight = np.exp(-0.5 * (apart**2).sum(axis=2)) + FAR
        result[at] = weight @ calls["log_ratio"].to_numpy(np.float64)[others] / weight.sum(axis=1)
    return result


def _kinds(calls: pd.DataFrame, requested: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """[num_calls], [num_asked] a number per op, kind of node, collective and phase."""
    both = pd.concat([calls[OP], requested[OP]], ignore_index=True)
    kinds = both.groupby(OP, dropna=False).ngroup().to_numpy()
    return kinds[: len(calls)], kinds[len(calls) :]


def _sizes(calls: pd.DataFrame) -> np.ndarray:
    """[num_calls, 2] log2 of the bytes moved and of the elements of the first tensor."""
    moved = calls["bytes"].astype(float).fillna(0.0) + calls["message_bytes"].astype(float).fillna(0.0)
    first = [np.prod((tensors(parse(d)[0]) or ((1,),))[0]) if isinstance(d, str) else 1.0 for d in calls["input_dims"]]
    sizes: np.ndarray = np.log2(np.maximum(np.column_stack([moved.to_numpy(), np.array(first, dtype=float)]), 1.0))
    return sizes
