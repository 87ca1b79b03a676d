"""Prediction: what anything that can answer "how long" returns, and the protocol it follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.spec import ClusterSpec


@dataclass(frozen=True)
class Prediction:
    """Latencies for the nodes of one graph.

    Attributes:
        graph: the graph predicted.
        latency_us: [num_nodes] float64; NaN where uncovered, 0 for device and link nodes.
        lag_us: [num_edges] float64; delay along each timed edge (0 where the edge has no lag class).
        source: [num_nodes] object array of schema.Source values.
        analytic_latency_us: [num_nodes] the analytical answer; NaN if it has none.
        latency_low_us, latency_high_us: [num_nodes] interval; NaN until intervals ship.
        uncovered_ops: op name -> number of nodes without any latency. They never count as zero silently.
        warnings: sentences for the user.
    """

    graph: ExecutionGraph
    latency_us: np.ndarray
    lag_us: np.ndarray
    source: np.ndarray
    analytic_latency_us: np.ndarray
    latency_low_us: np.ndarray
    latency_high_us: np.ndarray
    uncovered_ops: dict[str, int]
    warnings: tuple[str, ...] = ()


class Predictor(Protocol):
    """Anything that can answer "how long"."""

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Predict every node of `graph` as if run on `cluster`."""
        ...
