"""What the longest path of a step is made of: time by part, of which the step time is the sum.

As a function of factors on latencies and lags, the step time of a graph is a maximum over paths, each of them a
weighted sum of the factors: piecewise linear and convex. The longest path at one choice of factors is a tangent plane
of it, so it never overestimates at any other choice, and is exact nearby (Boyd, Vandenberghe 2004, section 3.1.3).

    step us                 . path A: the host, twice at twice the factor
                         .
    path B: kernels ____.
                       .
                          factor of the host
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.schedule.longest_path import TimedEdges, checked, forward_pass, timed_edges


@dataclass(frozen=True)
class PartOf:
    """Which part everything that takes time belongs to; -1: none, no factor moves it.

    Attributes:
        node: [num_nodes] int, of latencies.
        edge: [num_edges] int, of lags.
    """

    node: np.ndarray
    edge: np.ndarray


def path_times_us(
    graph: ExecutionGraph, latency_us: np.ndarray, lag_us: np.ndarray, part: PartOf, factors: np.ndarray
) -> np.ndarray:
    """Time of each part on the longest path of the first pass (nothing shared), before factors.

    Args:
        graph: one step.
        latency_us: [num_nodes] finite.
        lag_us: [num_edges] finite.
        part: of nodes and edges.
        factors: [num_choices, num_parts]; a path is found for each choice.

    Returns:
        [num_choices, num_parts + 1] us; the last column is what belongs to no part. A row times (factors, 1) is the
        step time at the row's own factors, and not more than it at others.

    Raises:
        InputError: a latency or lag is not finite or missing, or the graph has a cycle.
    """
    latency_us, lag_us, ready_us = checked(graph, latency_us, lag_us, None, 1)
    edges = timed_edges(graph)
    timed = PartOf(part.node, part.edge[edges.index])
    return np.array([_path_us(edges, latency_us, lag_us[edges.index], timed, each, ready_us) for each in factors])


def _path_us(
    edges: TimedEdges, latency_us: np.ndarray, lag_us: np.ndarray, part: PartOf, factors: np.ndarray,
    ready_us: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """[num_parts + 1] us of one path; lags and parts of edges are [num_timed]."""
    factor = np.append(factors, 1.0)  # -1 is the last: no part
    scaled = latency_us * factor[part.node]
    start, binding = forward_pass(edges.order, edges.in_first, edges.by_dst, edges.src, edges.from_start,
                                  lag_us * factor[part.edge], scaled, ready_us)  # fmt: skip
    last = int((start + scaled).argmax())
    result = np.zeros(len(factor))
    _add_back(last, binding, edges.src, edges.from_start, latency_us, lag_us, part.node, part.edge, result)
    return result


@numba.njit(cache=True)
def _add_back(node, binding, src, from_start, latency_us, lag_us, node_part, edge_part, result):  # type: ignore[no-untyped-def]
    """Add `result` [num_parts + 1] up along binding edges, from a node to the start of the step; -1: the last part."""
    result[node_part[node]] += latency_us[node]
    while binding[node] >= 0:
        edge = binding[node]
        node = src[edge]
        result[edge_part[edge]] += lag_us[edge]
        if not from_start[edge]:
            result[node_part[node]] += latency_us[node]
