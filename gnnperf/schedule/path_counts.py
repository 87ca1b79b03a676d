"""How often the critical path visits each node: the gradient of the step time of a schedule.

    step = sum over nodes of visits x latency + rest        d step / d latency = visits

This is a subgradient of the longest path, a maximum of sums (Boyd, Vandenberghe 2004, section 3.1.3), and the gradient
where that path is unique. A period is C(K) - C(K - 1): its visits are those of the path to C(K) less those of the path
to C(K - 1), and may be negative where the two paths part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import compiled
from gnnperf.graph import ExecutionGraph, lane_ends
from gnnperf.schedule.longest_path import TimedEdges, checked, cross_step_edges, is_work, timed_edges

NUM_UNROLLED = 4  # steps in a row until the increment is a period: the first ones fill the lanes


@dataclass(frozen=True)
class StepConstraints:
    """What a step's nodes wait for, prepared once for many choices of latencies."""

    edges: TimedEdges  # constraints within a copy of the step
    lag_us: np.ndarray  # [num_timed] of these edges
    awaited: np.ndarray  # [num_carried] node of one copy
    waiting: np.ndarray  # [num_carried] node of the next copy that waits for its end
    work: np.ndarray  # [num_work] nodes that take part in the step's end
    num_copies: int  # 1: the step time is a makespan; more: a period


@dataclass(frozen=True)
class StepVisits:
    """A step time and what it is made of."""

    step_us: float  # period or makespan
    visits: np.ndarray  # [num_nodes] how often each node's latency is part of it
    rest_us: float  # the lags in it; step_us = visits @ latency_us + rest_us


def constraints_of(graph: ExecutionGraph, lag_us: np.ndarray, num_copies: int) -> StepConstraints:
    """The constraints of one step.

    Args:
        graph: one step.
        lag_us: [num_edges] finite.
        num_copies: 1 for a makespan, NUM_UNROLLED for a period.

    Raises:
        InputError: a lag is not finite, no copy, or the graph has a cycle.
    """
    _, lag_us, _ = checked(graph, np.zeros(graph.num_nodes), lag_us, None, num_copies)
    edges = timed_edges(graph)
    awaited, waiting = cross_step_edges(graph, lane_ends(graph.nodes))
    return StepConstraints(edges, lag_us[edges.index], awaited, waiting, np.flatnonzero(is_work(graph)), num_copies)


def step_visits(constraints: StepConstraints, latency_us: np.ndarray) -> StepVisits:
    """Schedule the copies and walk back along what was binding."""
    copies, num_nodes = constraints.num_copies, len(latency_us)
    binding = np.empty((copies, num_nodes), dtype=np.int64)  # edge that fixed a node's start; -1: its ready time
    cause = np.full((copies, num_nodes), -1, dtype=np.int64)  # node of the copy before that fixed its ready time
    ready, last, completion = np.zeros(num_nodes), [], [0.0]
    for copy in range(copies):
        start, binding[copy] = constraints.edges.earliest(constraints.lag_us, latency_us, ready)
        end = start + latency_us  # [num_nodes]
        last.append(int(constraints.work[end[constraints.work].argmax()]))
        completion.append(float(end[last[-1]]))
        if copy + 1 < copies:
            ready, cause[copy + 1] = _cross_step(constraints, end)
    visits = _visits(constraints, binding, cause, last)
    step_us = completion[-1] - completion[-2]
    return StepVisits(step_us, visits, float(step_us - visits @ latency_us))


def _cross_step(constraints: StepConstraints, end_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[num_nodes] earliest starts in the next copy, and the node of this copy that fixes each; -1: none, from 0."""
    ready, cause = np.zeros(len(end_us)), np.full(len(end_us), -1, dtype=np.int64)
    awaited, waiting = constraints.awaited, constraints.waiting
    np.maximum.at(ready, waiting, end_us[awaited])
    fixes = (end_us[awaited] == ready[waiting]) & (ready[waiting] > 0)  # [num_carried]
    cause[waiting[fixes]] = awaited[fixes]
    return ready, cause


def _visits(constraints: StepConstraints, binding: np.ndarray, cause: np.ndarray, last: list[int]) -> np.ndarray:
    """[num_nodes] visits of the path to the last completion, less those of the path to the one before."""
    visits, copies, edges = np.zeros(binding.shape[1]), constraints.num_copies, constraints.edges
    for copy, sign in ((copies - 1, 1.0), (copies - 2, -1.0)):
        if copy >= 0:
            _walk_back(copy, last[copy], binding, cause, edges.src, edges.from_start, sign, visits)
    return visits


@compiled
def _walk_back(copy, node, binding, cause, src, from_start, sign, visits):  # type: ignore[no-untyped-def] # pragma: no cover
    """Add `sign` to the visits of the nodes on the path that ends with `node` of `copy`, back to the first start."""
    visits[node] += sign
    while True:
        edge = binding[copy, node]
        if edge >= 0:
            node = src[edge]
            if not from_start[edge]:
                visits[node] += sign
        elif cause[copy, node] >= 0:
            node = cause[copy, node]
            copy -= 1
            visits[node] += sign
        else:
            return
