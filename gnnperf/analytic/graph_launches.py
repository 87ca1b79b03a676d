"""Graph launches: one call that starts many kernels costs a call and, per kernel, much less than a launch of its own.

latency of the call = call + kernels x per kernel        host |T4 cudaGraphLaunch|
                                                         stream     |--- 497 kernels ---|
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from gnnperf.analytic.constants import AnalyticConstants, default_constants
from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import CallClass, ExecutionGraph, call_class

# Few positive constants from many measurements: damped least squares on logarithms, with a weak prior at the start.

STEP, MAX_STEPS, MAX_DAMPING, LARGEST_MOVE, TOLERANCE = 1e-4, 80, 1e10, 1.0, 1e-6
PRIOR_WEIGHT = 0.03


def fit_logs(
    residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray, prior_weight: float = PRIOR_WEIGHT
) -> np.ndarray:
    """Values [k] that minimize mean residual^2 + prior_weight^2 |log(values / start)|^2 (Levenberg, Marquardt)."""
    origin = np.log(start)

    def all_residuals(x: np.ndarray) -> np.ndarray:
        result = residuals(np.exp(x))
        return np.concatenate([result / np.sqrt(len(result)), prior_weight * (x - origin)])

    x, damping = origin.copy(), 1e-2
    now = all_residuals(x)
    for _ in range(MAX_STEPS):
        slopes = np.stack([(all_residuals(x + STEP * unit) - now) / STEP for unit in np.eye(len(x))], axis=1)
        moved, after, damping = _step(all_residuals, x, now, slopes, damping)
        gain = now @ now - after @ after
        x, now, damping = moved, after, max(damping / 5, 1e-8)
        if gain <= TOLERANCE * (now @ now):
            break
    return np.exp(x)


def softened(residuals: np.ndarray, scale: float) -> np.ndarray:
    """Residuals [n] whose squares are the pseudo-Huber loss: quadratic below `scale`, linear beyond (Charbonnier 1994).

    A measurement that something disturbed then pulls no harder the further off it is.
    """
    return np.sign(residuals) * scale * np.sqrt(2.0 * (np.sqrt(1.0 + (residuals / scale) ** 2) - 1.0))


def _step(
    all_residuals: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    now: np.ndarray,
    slopes: np.ndarray,
    damping: float,
) -> tuple[np.ndarray, np.ndarray, float]:
    """The first damped step that improves; `x` itself where none does."""
    normal, gradient = slopes.T @ slopes, slopes.T @ now
    while damping < MAX_DAMPING:
        step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), gradient)
        moved = x + np.clip(step, -LARGEST_MOVE, LARGEST_MOVE)
        after = all_residuals(moved)
        if after @ after < now @ now:
            return moved, after, damping
        damping *= 4
    return x, now, damping


CALL, KERNEL = "call", "kernel"  # keys of AnalyticConstants.graph_launch_us
_FUSED = re.compile(r"\[(\d+) kernels\]$")  # how the graph names the work of a graph launch
DISTURBED = 0.3  # log residuals beyond that count linearly
LEAST_US = 0.5


def launched_kernels(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] kernels that each graph launch starts; 0 for all other nodes."""
    nodes, edges = graph.nodes, graph.edges
    names = nodes["event_name"].astype(object).where(nodes["event_name"].notna(), "")
    launches = (nodes["node_type"] == NodeType.HOST).to_numpy() & (nodes["segment"] == Segment.T4).to_numpy()
    kinds = [name for name in names[launches].unique() if call_class(name) is CallClass.GRAPH_LAUNCH]  # a few
    launches &= names.isin(kinds).to_numpy()
    if not launches.any():
        return np.zeros(len(nodes))
    started = edges[(edges["relation"] == Relation.LAUNCHES).to_numpy()]
    kernels = names.map(_kernels_of).to_numpy(float)  # [num_nodes]
    src, dst = started["src"].to_numpy(), started["dst"].to_numpy()
    return np.where(launches, np.bincount(src, weights=kernels[dst], minlength=len(nodes)), 0.0)


def graph_launch_us(kernels: np.ndarray, constants: AnalyticConstants) -> np.ndarray:
    """[n] us of calls that start so many kernels."""
    return constants.graph_launch_us[CALL] + kernels * constants.graph_launch_us[KERNEL]


def fit_graph_launches(graphs: Iterable[ExecutionGraph], base: AnalyticConstants | None = None) -> AnalyticConstants:
    """Constants with the cost of graph launches on these graphs: one point per graph and number of kernels."""
    start = base or default_constants()
    points = np.array([point for graph in graphs for point in _points(graph)]).reshape(-1, 2)
    if not len(points):
        return start
    kernels, log_us = points[:, 0], np.log(points[:, 1])

    def residuals(result: np.ndarray) -> np.ndarray:
        return softened(np.log(result[0] + result[1] * kernels) - log_us, DISTURBED)

    call, kernel = fit_logs(residuals, np.array([start.graph_launch_us[CALL], start.graph_launch_us[KERNEL]]))
    return replace(start, graph_launch_us={CALL: float(call), KERNEL: float(kernel)})


def _points(graph: ExecutionGraph) -> list[tuple[float, float]]:
    """(kernels, median us) of the graph launches of a graph."""
    kernels, latency = launched_kernels(graph), graph.nodes["latency_us"].to_numpy()
    known = (kernels > 0) & (latency > LEAST_US)
    return [(float(n), float(np.median(latency[known & (kernels == n)]))) for n in np.unique(kernels[known])]


def _kernels_of(name: str) -> int:
    result = _FUSED.search(name)
    return int(result[1]) if result else 1
