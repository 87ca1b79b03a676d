"""Factors from a few measured steps, kept near 1 as far as left-out measurements say that this is better.

    mean log(step / measured)^2 + weight^2 sum (log factor / spread)^2   -> factors

Few labels differ in little, and what they do not tell stays where it was. How strongly, and which of several graphs of
the same configurations they speak for (recomputation or none, say), is chosen by leaving groups of labels out.

As a function of factors on latencies and lags, the step time of a graph is a maximum over paths, each of them a
weighted sum of the factors: piecewise linear and convex. The longest path at one choice of factors is a tangent plane:
it never overestimates at any other choice, and is exact nearby (Boyd, Vandenberghe 2004, section 3.1.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numba
import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, require
from gnnperf.graph import ExecutionGraph, Prediction, Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.schedule.longest_path import TimedEdges, checked, forward_pass, timed_edges
from research.fitting.logs import fit_logs

WEIGHTS = (0.5, 0.15, 0.05, 0.02)  # strongest first: of two that are as good, the stronger is taken
UNLABELED = float("inf")  # the weight under which no label moves a factor


@dataclass(frozen=True)
class Adaptation:
    """What a few labels say."""

    hypothesis: str  # which graphs they speak for
    weight: float  # of the prior; infinite where labels were of no use
    factors: tuple[float, ...]  # [num_parts] in the order of PARTS
    left_out_error: float  # mean absolute log error on labels left out, with this hypothesis and weight


def adapt(hypotheses: Mapping[str, StepLinearBounds], measured_us: np.ndarray, groups: np.ndarray) -> Adaptation:
    """The hypothesis and the factors that answer left-out labels best."""
    if not (np.isfinite(measured_us) & (measured_us > 0)).all():
        raise InputError("a measured step takes no time or is unknown", where="measured_us", allowed="positive us")
    distinct = len(np.unique(groups))
    require(distinct >= 2, "groups", distinct, "2 or more kinds of labels, so that one can be left out")
    tried = [(left_out_error(linear_bounds, measured_us, groups, weight), name, weight)
             for name, linear_bounds in hypotheses.items() for weight in (UNLABELED, *WEIGHTS)]  # fmt: skip
    error, name, weight = min(tried, key=lambda each: each[0])
    return Adaptation(name, weight, tuple(fit_factors(hypotheses[name], measured_us, weight)), error)


def fit_factors(linear_bounds: StepLinearBounds, measured_us: np.ndarray, weight: float) -> np.ndarray:
    """[num_parts] factors; see the module."""
    if np.isinf(weight):
        return np.ones(len(PARTS))

    def residuals(scaled: np.ndarray) -> np.ndarray:
        return np.log(linear_bounds.step_us(scaled**SPREADS) / measured_us)

    return fit_logs(residuals, np.ones(len(PARTS)), weight) ** SPREADS


def left_out_error(
    linear_bounds: StepLinearBounds, measured_us: np.ndarray, groups: np.ndarray, weight: float
) -> float:
    """Mean absolute log error on groups that the factors were not fitted on."""
    missed = np.empty(len(measured_us))
    for seen, requested in _folds(groups):
        factors = fit_factors(linear_bounds.of(seen), measured_us[seen], weight)
        missed[requested] = np.log(linear_bounds.of(requested).step_us(factors) / measured_us[requested])
    return float(np.abs(missed).mean())


def _folds(groups: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for group in np.unique(groups):
        yield groups != group, groups == group


COLLECTIVE_CALLS = "c10d::"  # torch's namespace of them
STREAM_LAG = "stream"  # class of edges between neighbors on a stream


@dataclass(frozen=True)
class Part:
    """One part of a step."""

    name: str  # of the part
    why: str  # what its factor stands for
    spread: float  # standard deviation of the factor's logarithm that is usual where nothing was measured


PARTS = (
    Part("host", "another processor, and frames around ops that a plan does not have", 0.4),
    Part("calls", "what a call of the collective library costs its host", 0.4),
    Part("kernels", "rates that this device and its libraries sustain", 0.15),
    Part("transfers", "rates and latencies that its links sustain", 0.15),
    Part("gaps", "what lies between two kernels of a stream", 1.0),
)
SPREADS = np.array([part.spread for part in PARTS])  # [num_parts]
HOST, CALLS, KERNELS, TRANSFERS, GAPS = range(len(PARTS))
NO_PART = -1
_OF_TYPE = {
    NodeType.HOST: HOST, NodeType.COMPUTE: KERNELS, NodeType.MEMORY: KERNELS, NodeType.COMM: TRANSFERS,
    NodeType.COLLECTIVE: TRANSFERS,
}  # fmt: skip


def parts_of(graph: ExecutionGraph) -> PartOf:
    """The place in PARTS of every node and edge; hardware and other lags belong to none."""
    lags = graph.edges["lag_class"].astype(object).fillna("").to_numpy()
    return PartOf(_node_parts(graph.nodes), np.where(lags == STREAM_LAG, GAPS, NO_PART))


def _node_parts(nodes: pd.DataFrame) -> np.ndarray:
    types = nodes["node_type"].to_numpy().astype(str)
    result = np.full(len(nodes), NO_PART)
    for node_type, part in _OF_TYPE.items():
        result[types == str(node_type)] = part
    calls = nodes["op_name"].astype(object).fillna("").astype(str).str.startswith(COLLECTIVE_CALLS).to_numpy(bool)
    result[(result == HOST) & calls] = CALLS
    return result


@dataclass(frozen=True)
class PartOf:
    """Which part everything that takes time belongs to; -1: none, no factor moves it."""

    node: np.ndarray  # [num_nodes] int, of latencies
    edge: np.ndarray  # [num_edges] int, of lags


def path_times_us(
    graph: ExecutionGraph, latency_us: np.ndarray, lag_us: np.ndarray, part: PartOf, factors: np.ndarray
) -> np.ndarray:
    """Time of each part on the longest path of the first pass (nothing shared), before factors."""
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


# Which of host and device is slower decides a step: choices go through their ratio, and through what fills the device,
# kernels or the gaps between them.
CHOICES = (  # [num_choices, num_parts]: host, calls, kernels, transfers, gaps
    (1.0, 1.0, 1.0, 1.0, 1.0),
    (0.5, 0.5, 1.0, 1.0, 1.0),
    (1.4, 1.4, 1.0, 1.0, 1.0),
    (2.0, 2.0, 1.0, 1.0, 1.0),
    (3.0, 3.0, 1.0, 1.0, 1.0),
    (1.4, 0.4, 1.0, 1.0, 1.0),
    (1.4, 0.4, 1.0, 1.0, 6.0),
    (1.4, 1.4, 0.9, 1.0, 12.0),
)


@dataclass(frozen=True)
class StepLinearBounds:
    """Step times as maxima of planes: longest paths at some choices of factors."""

    time_us: np.ndarray  # [num_steps, num_choices, num_parts + 1] us of each part on a longest path; last, of no part

    def step_us(self, factors: np.ndarray) -> np.ndarray:
        """[num_steps] us with `factors` [num_parts] on the latencies of the parts."""
        return (self.time_us @ np.append(factors, 1.0)).max(axis=1)

    def of(self, steps: np.ndarray) -> StepLinearBounds:
        """Those of some steps: an index or mask of [num_steps]."""
        return replace(self, time_us=self.time_us[steps])


def linear_bounds_of(prediction: Prediction) -> np.ndarray:
    """[num_choices, num_parts + 1] us of one step's graph, as a row of `StepLinearBounds`; nothing is shared."""
    graph = prediction.graph
    return path_times_us(graph, prediction.latency_us, prediction.lag_us, parts_of(graph), np.array(CHOICES))


@dataclass(frozen=True)
class ScaledPredictor:
    """Answers of a predictor times a factor per part."""

    predictor: Predictor  # whose answers
    factors: tuple[float, ...]  # [num_parts] positive, in the order of PARTS

    def __post_init__(self) -> None:
        require(len(self.factors) == len(PARTS) and min(self.factors) > 0, "factors", self.factors,
                f"{len(PARTS)} positive numbers: {', '.join(part.name for part in PARTS)}")  # fmt: skip

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Latencies, their intervals and lags times the factor of their part; sources as they are."""
        given = self.predictor.predict(graph, cluster)
        part, factors = parts_of(graph), np.append(self.factors, 1.0)  # -1 is the last: no part
        factor = factors[part.node]  # [num_nodes]
        return replace(
            given,
            latency_us=given.latency_us * factor,
            latency_low_us=given.latency_low_us * factor,
            latency_high_us=given.latency_high_us * factor,
            lag_us=given.lag_us * factors[part.edge],
        )
