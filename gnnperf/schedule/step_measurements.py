"""What a trace measured of one step: latencies, and delays that no modeled constraint explains.

host    |--op--|          |--op--|        the second op may begin when the first ends
                 delay_us                 it began later, and nothing in the graph states why: a stall

With measured latencies, lags and delays, the schedule reproduces the measured starts. An edit or other hardware
changes latencies; delays stay as measured, because they scale with neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from gnnperf.core import TIMED_RELATIONS, Evidence, InputError, NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph, ProfilerCost, StepLabel, measured_end_us, profiler_us
from gnnperf.schedule.longest_path import timed_edges
from gnnperf.schedule.medians import ClassMedians, fit_medians, in_peer_wait, measured_latency_us

STALL_US = 1_000.0  # shorter ones are usual scatter of a host
STALL_FACTOR = 10.0  # times the median of the node's class
OUTLIER = 1.5  # times the median step, or its inverse: an outlier
LEAST_NODES = 8  # of a class; fewer have no median that a stall among them leaves where it was
HOST_CLASSES = (["segment", "op_name", "event_name"], ["segment", "event_name"], ["segment"])  # finest first
RELATIONS = [str(relation) for relation in Relation]


@dataclass(frozen=True)
class MeasuredStep:
    """Measurements of one step, on the graph that predictors receive."""

    graph: ExecutionGraph  # the step, without edges inferred from time distances
    # [num_nodes] as measured; NaN where the trace has no measurement. The wait for untraced peers holds their
    # transfer as well, so the transfer itself takes 0.
    latency_us: np.ndarray
    delay_us: np.ndarray  # [num_nodes] from the moment that every constraint allows a node until it began; 0 or more
    # [num_edges] measured delay along an edge; where another edge was binding, the median of the edge's class, at
    # most what the measured times leave
    lag_us: np.ndarray
    # [num_nodes] median of the finest class of host nodes, over the whole trace, that has LEAST_NODES; NaN none
    usual_us: np.ndarray
    # [num_nodes] bool, host nodes that took STALL_US or more and STALL_FACTOR times what is usual (first launches,
    # data loading, cudaMalloc, sleeps)
    stalled: np.ndarray
    rank_start_us: Mapping[int, float]  # rank -> start of the step after that of the earliest rank
    medians: ClassMedians  # per class of nodes and edges, over the whole trace
    from_other_steps: bool = False  # whether this is another step than the predicted one: a forecast, not a copy

    @property
    def stalls_us(self) -> np.ndarray:
        """[num_nodes] time of the step's stalls: latency of stalled nodes, and delays of STALL_US or more."""
        return np.where(self.stalled, self.latency_us, 0.0) + np.where(self.delay_us >= STALL_US, self.delay_us, 0.0)

    def without_stalls(self) -> "MeasuredStep":
        """The step with what is usual for every stalled node, and without delays of STALL_US or more."""
        latency_us = np.where(self.stalled, self.usual_us, self.latency_us)
        delay_us = np.where(self.delay_us >= STALL_US, 0.0, self.delay_us)
        return replace(self, latency_us=latency_us, delay_us=delay_us, stalled=np.zeros_like(self.stalled))

    def without_profiler(self, cost: ProfilerCost) -> "MeasuredStep":
        """The step without what the profiler itself took of host work."""
        taken_us, lag_taken_us = profiler_us(self.graph, self.latency_us, self.lag_us, cost)
        return replace(self, latency_us=self.latency_us - taken_us, lag_us=self.lag_us - lag_taken_us)

    def edge_lags_us(self, graph: ExecutionGraph, came_from: np.ndarray) -> np.ndarray:
        """[num_edges of graph] lags with the delays of nodes on top, of this step or an edit of it.

        `came_from` [num_nodes of graph]: the node of this step that each one is, or is a copy of.
        """
        known, first = self._known_edges
        own = self._edge_numbers(graph, came_from)
        at = np.minimum(np.searchsorted(known, own), max(len(known) - 1, 0))
        new = known[at] != own if len(known) else np.ones(len(own), dtype=bool)  # drawn by an edit
        lag_us = np.zeros(len(own))
        lag_us[~new] = self.lag_us[first[at[~new]]]
        if new.any():
            lag_us[new] = np.nan_to_num(self.medians.lag_us(graph, np.flatnonzero(new)))
        return lag_us + self.delay_us[came_from[graph.edges["dst"].to_numpy()]]

    @cached_property
    def _known_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the step's edges in order, each once, and the first edge that has each."""
        numbers, first = np.unique(self._edge_numbers(self.graph, np.arange(self.graph.num_nodes)), return_index=True)
        return numbers, first

    def _edge_numbers(self, graph: ExecutionGraph, came_from: np.ndarray) -> np.ndarray:
        """[num_edges] one number per source, target and relation, both ends as nodes of this step."""
        relation = pd.Categorical(graph.edges["relation"], RELATIONS).codes.astype(np.int64)
        src, dst = (came_from[graph.edges[end].to_numpy()] for end in ("src", "dst"))
        return (src.astype(np.int64) * self.graph.num_nodes + dst) * len(RELATIONS) + relation


def measured_step(graph: ExecutionGraph, label: StepLabel) -> "MeasuredStep":
    """Measurements of one step of a trace.

    Args:
        graph: the whole window, with labels.
        label: the step.
    """
    step = graph.step(label.step).for_predictors()
    latency_us = measured_latency_us(step)
    latency_us = np.where(np.isnan(latency_us) & in_peer_wait(step), 0.0, latency_us)
    medians = fit_medians(graph, np.ones(graph.num_nodes, dtype=bool))
    lag_us, delay_us = _lags_us(step, latency_us, medians)
    rows = graph.rows_of_step(label.step)
    if label.period_us is not None:  # its schedule has a step before it
        delay_us = np.fmin(delay_us, _after_earlier_steps_us(graph, rows, latency_us))
    first_us = min(label.rank_start_us, default=0.0)
    starts = {rank: start - first_us for rank, start in zip(graph.ranks, label.rank_start_us, strict=True)}
    usual_us = _usual_us(graph)[rows]
    stalled = (latency_us >= STALL_US) & (latency_us >= STALL_FACTOR * usual_us)  # NaN is not
    return MeasuredStep(step, latency_us, delay_us, lag_us, usual_us, stalled, starts, medians)


def forecast_step(graph: ExecutionGraph, label: StepLabel) -> "MeasuredStep":
    """Measurements of another step: of the others that are no outliers, the one with the (lower) median step time.

    A whole step keeps what belongs together; medians or means node by node had larger errors (docs/benchmarks).
    Outliers are judged by the (lower) median of the others; of the rest, steps with a period are preferred.

    Args:
        graph: the whole window.
        label: the step to forecast; nothing of it is used.

    Raises:
        InputError: the trace has no other step.
    """
    others = [s for s in graph.steps if s.step != label.step]
    if not others:
        raise InputError("the trace has one step only", where="evidence=other_steps", allowed="evidence=trace or none",
                         remedy="record at least two steps")  # fmt: skip
    ranked = sorted(others, key=lambda s: (step_us(s), s.step))
    median_us = step_us(ranked[(len(ranked) - 1) // 2])
    usual = [s for s in ranked if median_us <= OUTLIER * step_us(s) and step_us(s) <= OUTLIER * median_us]
    chosen = [s for s in usual if s.period_us is not None] or usual
    return replace(measured_step(graph, chosen[(len(chosen) - 1) // 2]), from_other_steps=True)


def step_us(label: StepLabel) -> float:
    """Measured period of a step; of a step without one, its makespan."""
    return label.makespan_us if label.period_us is None else label.period_us


def _usual_us(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] median latency of each host node's class; NaN for other nodes, waits for peers and small classes."""
    nodes = graph.nodes
    host = ((nodes["node_type"] == NodeType.HOST) & (nodes["segment"] != Segment.PEER_WAIT)).to_numpy()
    read = list(dict.fromkeys(["latency_us", *(name for columns in HOST_CLASSES for name in columns)]))
    rows, result = nodes[read][host], np.full(len(nodes), np.nan)
    usual_us = np.full(len(rows), np.nan)
    for columns in HOST_CLASSES:
        groups = rows.groupby(columns, observed=True, dropna=False)["latency_us"]
        large = (groups.transform("count") >= LEAST_NODES).to_numpy() & np.isnan(usual_us)
        usual_us[large] = groups.transform("median").to_numpy(np.float64)[large]
    result[host] = usual_us
    return result


def _after_earlier_steps_us(graph: ExecutionGraph, rows: np.ndarray, latency_us: np.ndarray) -> np.ndarray:
    """[num_rows] from the end of what a node waits for of earlier steps until it began, inf: of nothing.

    A full launch queue holds the host back, and unfinished kernels the stream. Such waits are no delays: they shrink
    where the host gets slower, which is how queued work hides a pause of the host.
    """
    src, dst = graph.edges[["src", "dst"]].to_numpy().T
    inside = np.full(graph.num_nodes, -1)
    inside[rows] = np.arange(len(rows))
    timed = graph.edges["relation"].isin([str(relation) for relation in TIMED_RELATIONS]).to_numpy()
    crosses = timed & (inside[src] < 0) & (inside[dst] >= 0)
    end_us, result, waits = measured_end_us(graph.nodes), np.full(len(rows), np.inf), np.zeros(len(rows), dtype=bool)
    # The depth of a queue is known roughly, so the length of a wait follows from the kernel that ended just then.
    at = inside[dst[crosses]]
    np.fmin.at(result, at, end_us[rows][at] - latency_us[at] - end_us[src[crosses]])
    waits[at[(graph.edges["evidence"] != Evidence.TIMING).to_numpy()[crosses]]] = True
    return np.where(waits, np.maximum(result, 0.0), np.inf)


def _lags_us(step: ExecutionGraph, latency_us: np.ndarray, medians: ClassMedians) -> tuple[np.ndarray, np.ndarray]:
    """([num_edges] lags, [num_nodes] delays)."""
    edges = timed_edges(step)
    end_us = measured_end_us(step.nodes)  # [num_nodes]
    start_us = end_us - latency_us  # of the work itself: after a wait, not before it
    allowed_us = np.where(edges.from_start, start_us[edges.src], end_us[edges.src])  # [num_timed]
    left_us = start_us[edges.dst] - allowed_us  # [num_timed] time that the measured starts leave for a lag
    lag_us = step.edges["lag_us"].to_numpy(np.float64, copy=True)
    usual_us = np.nan_to_num(medians.lag_us(step))[edges.index]  # [num_timed]
    measured_us = lag_us[edges.index]
    at_most_us = np.clip(np.nan_to_num(left_us, nan=np.inf), 0.0, None)
    lag_us[edges.index] = np.where(np.isnan(measured_us), np.minimum(usual_us, at_most_us), measured_us)
    lag_us = np.nan_to_num(lag_us)
    idle_us = np.where(np.isnan(left_us), np.inf, left_us - lag_us[edges.index])
    delay_us = np.full(step.num_nodes, np.inf)
    np.minimum.at(delay_us, edges.dst, idle_us)
    return lag_us, np.where(np.isfinite(delay_us), np.maximum(delay_us, 0.0), 0.0)
