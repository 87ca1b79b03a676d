"""A measured step as rules look at it, and step times of its edits.

Measurements stay. Where an edit leaves a latency unknown (an op of another shape), the first of these gives it:

measured     the recording has calls with these shapes and bytes     their median
calibrated   it has calls of this op with others                     predicted x measured / predicted of near ones
predicted    it has none                                             predicted

Near are calls that move about as much, from memory of about the same size: caches are faster than memory, and a
predictor that is off for a large table is off for half of it. Recorded calls weigh exp(-d^2 / 2), d the distance in
factors of two (a Nadaraya-Watson mean of log ratios).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType
from gnnperf.generate import parse, tensors
from gnnperf.graph import ExecutionGraph, Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.schedule import Schedule, fit_medians, measured_latencies, schedule
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.findings.finding import Basis, Observed

OP = ["node_type", "op_name", "collective", "phase"]
CALL = [*OP, "input_dims", "bytes", "message_bytes"]
FAR = 1e-6  # weight of calls of whatever size: where none is near, all count alike


def measured_step(
    graph: ExecutionGraph,
    num_unrolled: int,
    cluster: ClusterSpec | None = None,
    predictor: Predictor | None = None,
    analytic_us: np.ndarray | None = None,
) -> Observed:
    """One measured step.

    Args:
        graph: one step, with labels; nodes and gaps that were not measured take the median of their class.
        num_unrolled: 1: the step time is a makespan; more: a period.
        cluster: that it ran on; None unknown.
        predictor: of latencies that an edit leaves unknown; None: such edits are refused.
        analytic_us: [num_nodes] of the analytical model for the same nodes; None: not requested.
    """
    measured_us, measured_lag_us = measured_latencies(graph)
    latency_us, lag_us = np.nan_to_num(measured_us), np.nan_to_num(measured_lag_us)
    known = replace(graph, nodes=graph.nodes.assign(latency_us=latency_us), edges=graph.edges.assign(lag_us=lag_us))
    medians = fit_medians(known, np.ones(known.num_nodes, dtype=bool))

    def scheduled(of: ExecutionGraph, latency_us: np.ndarray) -> Schedule:
        """With the gaps that were measured, medians of their class on edges that an edit has drawn."""
        lag_us = of.edges["lag_us"].to_numpy()
        lag_us = np.nan_to_num(np.where(np.isnan(lag_us), medians.lag_us(of), lag_us))
        return schedule(of, latency_us, lag_us, num_unrolled=num_unrolled)

    def step_time_of(edited: Edited) -> float:
        filled = _filled(edited, known, cluster, predictor)
        latency_us = np.nan_to_num(filled.nodes["latency_us"].to_numpy())
        return scheduled(filled, edited.latency_change.of(latency_us)).step_time_us

    before = scheduled(known, latency_us)
    predicted_us = np.full(graph.num_nodes, np.nan) if analytic_us is None else analytic_us
    return Observed(known, latency_us, ~np.isnan(measured_us), predicted_us, before, before.step_time_us,
                    Basis.MEASURED, cluster, step_time_of)  # fmt: skip


def _filled(
    edited: Edited, known: ExecutionGraph, cluster: ClusterSpec | None, predictor: Predictor | None
) -> ExecutionGraph:
    """The edited graph with a latency for what the edit left without one.

    Raises InputError: no source has the latency of one of its nodes.
    """
    open_ = edited.graph.nodes["latency_us"].isna().to_numpy() & edited.touched
    if not open_.any():
        return edited.graph
    predicted = [
        np.full(graph.num_nodes, np.nan)
        if cluster is None or predictor is None
        else predictor.predict(graph, cluster).latency_us
        for graph in (known, edited.graph)
    ]
    filled = calibrated_to_trace(edited, known, *predicted)
    missing = filled.nodes["latency_us"].isna().to_numpy() & open_
    if missing.any():
        names = sorted(set(filled.nodes["op_name"].astype(str)[missing]))
        raise InputError(f"no source has the latency of {', '.join(names[:3])}", where=f"graph {known.name!r}")
    return filled


def calibrated_to_trace(
    edited: Edited, recorded: ExecutionGraph, predicted_before_us: np.ndarray, predicted_after_us: np.ndarray
) -> ExecutionGraph:
    """The edited graph with a latency for what the edit left without one.

    Latencies that the edit left are kept. Both predictions [num_nodes] us are of one predictor.
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
    return replace(edited.graph, nodes=nodes.assign(latency_us=latency_us))


def _nearby(requested: pd.DataFrame, calls: pd.DataFrame) -> np.ndarray:
    """[num_requested] log(measured / predicted) of the op's calls that are near in size; 0 where it has none."""
    result, log_ratio = np.zeros(len(requested)), calls["log_ratio"].to_numpy(np.float64)
    sizes, known = _sizes(requested), _sizes(calls)
    both = pd.concat([calls[OP], requested[OP]], ignore_index=True)
    kinds = both.groupby(OP, dropna=False).ngroup().to_numpy()  # a number per op, type of node, collective and phase
    kind_of_call, requested_kind = kinds[: len(calls)], kinds[len(calls) :]
    for kind in np.intersect1d(kind_of_call, requested_kind):
        others, at = np.flatnonzero(kind_of_call == kind), np.flatnonzero(requested_kind == kind)
        apart = sizes[at][:, None, :] - known[others][None, :, :]  # [requested, calls, sizes]
        weight = np.exp(-0.5 * (apart**2).sum(axis=2)) + FAR
        result[at] = weight @ log_ratio[others] / weight.sum(axis=1)
    return result


def _sizes(calls: pd.DataFrame) -> np.ndarray:
    """[num_calls, 2] log2 of the bytes moved and of the elements of the first tensor."""
    moved = calls["bytes"].astype(float).fillna(0.0) + calls["message_bytes"].astype(float).fillna(0.0)
    first = [np.prod((tensors(parse(d)[0]) or ((1,),))[0]) if isinstance(d, str) else 1.0 for d in calls["input_dims"]]
    sizes: np.ndarray = np.log2(np.maximum(np.column_stack([moved.to_numpy(), np.array(first, dtype=float)]), 1.0))
    return sizes
