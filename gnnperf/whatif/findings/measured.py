"""A measured step as rules look at it, and step times of its edits.

What was measured stays. Where an edit leaves a latency unknown (an op of another shape), the measurements of the same
call answer, else a predictor held to them (`plan.calibrated_to_trace`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.core import InputError
from gnnperf.graph import ExecutionGraph, Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.schedule import ClassMedians, Schedule, fit_medians, measured_latencies, schedule
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.findings.finding import Basis
from gnnperf.whatif.findings.observed import Observed
from gnnperf.whatif.trace_calibration import calibrated_to_trace


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
        predictor: who answers for what an edit leaves without a latency; None: such edits are refused.
        analytic_us: [num_nodes] what the analytical model says of the same nodes; None: not requested.
    """
    measured_us, measured_lag_us = measured_latencies(graph)
    latency_us, lag_us = np.nan_to_num(measured_us), np.nan_to_num(measured_lag_us)
    known = replace(graph, nodes=graph.nodes.assign(latency_us=latency_us), edges=graph.edges.assign(lag_us=lag_us))
    medians = fit_medians(known, np.ones(known.num_nodes, dtype=bool))

    def step_time_of(edited: Edited) -> float:
        filled = _filled(edited, known, cluster, predictor)
        return step_time_us(_scheduled(filled, edited.latency_change.of(_latencies(filled)), medians, num_unrolled))

    scheduled = _scheduled(known, latency_us, medians, num_unrolled)
    predicted_us = np.full(graph.num_nodes, np.nan) if analytic_us is None else analytic_us
    return Observed(
        known,
        latency_us,
        ~np.isnan(measured_us),
        predicted_us,
        scheduled,
        step_time_us(scheduled),
        Basis.MEASURED,
        cluster,
        step_time_of,
    )


def step_time_us(scheduled: Schedule) -> float:
    """The period where the step was unrolled, else the makespan."""
    return scheduled.makespan_us if scheduled.period_us is None else scheduled.period_us


def _latencies(graph: ExecutionGraph) -> np.ndarray:
    return np.nan_to_num(graph.nodes["latency_us"].to_numpy())


def _scheduled(graph: ExecutionGraph, latency_us: np.ndarray, medians: ClassMedians, num_unrolled: int) -> Schedule:
    """With the gaps that were measured, medians of their class on edges that an edit has drawn."""
    lag_us = graph.edges["lag_us"].to_numpy()
    lag_us = np.nan_to_num(np.where(np.isnan(lag_us), medians.lag_us(graph), lag_us))
    return schedule(graph, latency_us, lag_us, num_unrolled=num_unrolled)


def _predicted(graph: ExecutionGraph, cluster: ClusterSpec | None, predictor: Predictor | None) -> np.ndarray:
    """[num_nodes] what the predictor says; NaN without one."""
    if cluster is None or predictor is None:
        return np.full(graph.num_nodes, np.nan)
    return predictor.predict(graph, cluster).latency_us


def _filled(
    edited: Edited, known: ExecutionGraph, cluster: ClusterSpec | None, predictor: Predictor | None
) -> ExecutionGraph:
    """The edited graph with a latency for what the edit left without one.

    Raises:
        InputError: nothing answers for one of its nodes.
    """
    open_ = edited.graph.nodes["latency_us"].isna().to_numpy() & edited.touched
    if not open_.any():
        return edited.graph
    filled = calibrated_to_trace(
        edited, known, _predicted(known, cluster, predictor), _predicted(edited.graph, cluster, predictor)
    )
    missing = filled.nodes["latency_us"].isna().to_numpy() & open_
    if missing.any():
        names = sorted(set(filled.nodes["op_name"].astype(str)[missing]))
        raise InputError(f"nobody tells the latency of {', '.join(names[:3])}", where=f"graph {known.name!r}")
    return filled
