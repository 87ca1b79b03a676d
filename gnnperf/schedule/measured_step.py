"""What a trace measured of one step: latencies, and delays that no modeled constraint explains.

host    |--op--|          |--op--|        the second op may begin when the first ends
                 delay_us                 it began later, and nothing in the graph says why: a stall

With measured latencies, lags and delays, the schedule reproduces the measured starts. An edit or other hardware
changes latencies; delays stay as measured, because they scale with neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core.schema import Segment
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.graph.labels import measured_end_us
from gnnperf.schedule.alignment import align
from gnnperf.schedule.longest_path import timed_edges
from gnnperf.schedule.medians import ClassMedians, fit_medians, in_peer_wait

STALL_US = 1_000.0  # a delay from which it counts as a stall of its own
EDGE = ["src", "dst", "relation"]


@dataclass(frozen=True)
class MeasuredStep:
    """Measurements of one step, on the graph that predictors receive.

    Attributes:
        graph: the step, without edges inferred from time distances.
        latency_us: [num_nodes] as measured; NaN where the trace has no measurement. The wait for untraced peers holds
            their transfer as well, so the transfer itself takes 0.
        delay_us: [num_nodes] from the moment that every constraint allows a node until it began; 0 or more.
        lag_us: [num_edges] measured delay along an edge; where another edge was binding, the median of the edge's
            class, at most what the measured times leave.
        rank_start_us: rank -> start of the step after that of the earliest rank.
        from_other_steps: whether the latencies are medians over other steps: a forecast, not a copy.
    """

    graph: ExecutionGraph
    latency_us: np.ndarray
    delay_us: np.ndarray
    lag_us: np.ndarray
    rank_start_us: Mapping[int, float]
    medians: ClassMedians
    from_other_steps: bool = False

    @property
    def stalls(self) -> np.ndarray:
        """[num_nodes] bool: nodes that began STALL_US or more after everything that the graph knows allowed it."""
        return self.delay_us >= STALL_US

    def edge_lags_us(self, graph: ExecutionGraph, came_from: np.ndarray) -> np.ndarray:
        """[num_edges of graph] lags with the delays of nodes on top.

        Args:
            graph: this step, or an edit of it.
            came_from: [num_nodes of graph] the node of this step that each one is, or is a copy of.
        """
        ends = pd.DataFrame({"src": came_from[graph.edges["src"].to_numpy()],
                             "dst": came_from[graph.edges["dst"].to_numpy()],
                             "relation": graph.edges["relation"].astype(str).to_numpy()})  # fmt: skip
        known = self.graph.edges[EDGE].astype({"relation": str}).assign(lag_us=self.lag_us).drop_duplicates(EDGE)
        lag_us = ends.merge(known, on=EDGE, how="left")["lag_us"].to_numpy(np.float64, copy=True)
        new = np.isnan(lag_us)  # drawn by an edit
        if new.any():
            lag_us[new] = np.nan_to_num(self.medians.lag_us(graph))[new]
        return lag_us + self.delay_us[ends["dst"].to_numpy()]


def measured_step(graph: ExecutionGraph, label: StepLabel) -> MeasuredStep:
    """Measurements of one step of a trace.

    Args:
        graph: the whole window, with labels.
        label: the step.
    """
    step = graph.step(label.step).for_predictors()
    latency_us = _latencies_us(step)
    medians = fit_medians(graph, np.ones(graph.num_nodes, dtype=bool))
    lag_us, delay_us = _lags_us(step, latency_us, medians)
    first_us = min(label.rank_start_us, default=0.0)
    starts = {rank: start - first_us for rank, start in zip(graph.ranks, label.rank_start_us, strict=True)}
    return MeasuredStep(step, latency_us, delay_us, lag_us, starts, medians)


def forecast_step(graph: ExecutionGraph, label: StepLabel) -> MeasuredStep:
    """What other steps of the trace measured of the nodes of a step: medians over the steps that have the node.

    Args:
        graph: the whole window; its step `label` gives the result nothing but a number.
        label: the step to forecast. The structure is that of the nearest other step.

    Raises:
        ValueError: the trace has no other step.
    """
    others = sorted((s for s in graph.steps if s.step != label.step), key=lambda s: (abs(s.step - label.step), -s.step))
    if not others:
        raise ValueError("no other step")
    with_period = [s for s in others if s.period_us is not None]
    chosen = [s for s in others if s in with_period] or others
    base, *more = (measured_step(graph, each) for each in chosen)
    latencies, delays = [base.latency_us], [base.delay_us]
    for each in more:
        matched = align(base.graph, each.graph)  # [num_nodes of base] node of the other step, -1 none
        latencies.append(np.where(matched >= 0, each.latency_us[matched], np.nan))
        delays.append(np.where(matched >= 0, each.delay_us[matched], np.nan))
    return MeasuredStep(
        graph=base.graph,
        latency_us=_median(latencies),
        delay_us=np.nan_to_num(_median(delays)),
        lag_us=base.lag_us,
        rank_start_us=base.rank_start_us,
        medians=base.medians,
        from_other_steps=True,
    )


def _median(columns: list[np.ndarray]) -> np.ndarray:
    """[n] median over columns that have a value; NaN where none has."""
    frame = pd.DataFrame(np.stack(columns, axis=1))
    return frame.median(axis=1, skipna=True).to_numpy(np.float64)


def _latencies_us(step: ExecutionGraph) -> np.ndarray:
    """[num_nodes]; a wait for untraced peers lasts as long as the thread was blocked, transfer included."""
    nodes = step.nodes
    peer = (nodes["segment"] == Segment.PEER_WAIT).to_numpy()
    latency_us = np.where(peer, nodes["blocked_us"], nodes["latency_us"]).astype(np.float64)
    return np.where(np.isnan(latency_us) & in_peer_wait(step), 0.0, latency_us)


def _lags_us(step: ExecutionGraph, latency_us: np.ndarray, medians: ClassMedians) -> tuple[np.ndarray, np.ndarray]:
    """([num_edges] lags, [num_nodes] delays)."""
    edges = timed_edges(step)
    end_us = measured_end_us(step.nodes)  # [num_nodes]
    start_us = end_us - latency_us  # of the work itself: after a wait, not before it
    allowed_us = np.where(edges.from_start, start_us[edges.src], end_us[edges.src])  # [num_timed]
    room_us = start_us[edges.dst] - allowed_us  # [num_timed] time that the measured starts leave for a lag
    lag_us = step.edges["lag_us"].to_numpy(np.float64, copy=True)
    usual_us = np.nan_to_num(medians.lag_us(step))[edges.index]  # [num_timed]
    measured_us = lag_us[edges.index]
    at_most_us = np.clip(np.nan_to_num(room_us, nan=np.inf), 0.0, None)
    lag_us[edges.index] = np.where(np.isnan(measured_us), np.minimum(usual_us, at_most_us), measured_us)
    lag_us = np.nan_to_num(lag_us)
    left_us = np.where(np.isnan(room_us), np.inf, room_us - lag_us[edges.index])
    delay_us = np.full(step.num_nodes, np.inf)
    np.minimum.at(delay_us, edges.dst, left_us)
    return lag_us, np.where(np.isfinite(delay_us), np.maximum(delay_us, 0.0), 0.0)
