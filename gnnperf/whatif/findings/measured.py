"""A measured step as rules look at it, and step times of its edits.

Measurements stay. Where an edit leaves a latency unknown (an op of another shape), it is the measured latency of the
node it came from, scaled by the ratio that the predictor gives: measured x predicted after / predicted before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.core import InputError
from gnnperf.graph import ExecutionGraph, Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.schedule import Schedule, fit_medians, measured_latencies, schedule
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.findings.finding import Basis, Observed


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

    Raises InputError: the predictor does not cover one of its nodes.
    """
    nodes = edited.graph.nodes
    open_ = nodes["latency_us"].isna().to_numpy() & edited.touched
    if not open_.any():
        return edited.graph
    if cluster is not None and predictor is not None:
        before_us, after_us = (predictor.predict(graph, cluster).latency_us for graph in (known, edited.graph))
        own_us = before_us[edited.came_from]
        ratio = np.divide(after_us, own_us, out=np.full(len(own_us), np.nan), where=own_us > 0)
        scaled_us = known.nodes["latency_us"].to_numpy()[edited.came_from] * ratio
        nodes = nodes.assign(latency_us=nodes["latency_us"].mask(open_, scaled_us))
    missing = ~np.isfinite(nodes["latency_us"].to_numpy()) & open_
    if missing.any():
        names = sorted(set(nodes["op_name"].astype(str)[missing]))
        raise InputError(f"no source has the latency of {', '.join(names[:3])}", where=f"graph {known.name!r}")
    return replace(edited.graph, nodes=nodes)
