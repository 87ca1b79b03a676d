"""A graph launch costs by what it launches."""

from __future__ import annotations

import numpy as np
import pytest
from toys import make_graph

from gnnperf.analytic import AnalyticPredictor
from gnnperf.analytic.constants import default_constants
from gnnperf.analytic.predictor import graph_launch_us, launched_kernels
from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import load_cluster
from research.fitting.gpu_constants import fit_graph_launches


def launches(*kernels: int, latency_us: float = float("nan")) -> ExecutionGraph:
    """One call per number of kernels; 1: a graph of a single kernel."""
    rows: list[dict[str, object]] = []
    edges = []
    for count in kernels:
        name = f"cudaGraphLaunch[{count} kernels]" if count > 1 else "gemm"
        rows.append({"node_type": NodeType.HOST, "segment": Segment.T4, "event_name": "cudaGraphLaunch", "thread": 0,
                     "latency_us": latency_us})  # fmt: skip
        rows.append({"node_type": NodeType.COMPUTE, "event_name": name, "stream": 0, "device": 0})
        edges.append((len(rows) - 2, len(rows) - 1, Relation.LAUNCHES))
    return make_graph(rows, edges)


def test_kernels_under_a_launch() -> None:
    assert launched_kernels(launches(5, 1)).tolist() == [5, 0, 1, 0]


def test_kernels_on_two_streams_add_up() -> None:
    graph = launches(5, 3)
    both = graph.edges.assign(src=0)
    assert launched_kernels(ExecutionGraph(**{**graph.__dict__, "edges": both})).tolist() == [8, 0, 0, 0]


def test_other_calls_launch_no_graph() -> None:
    rows: list[dict[str, object]] = [
        {"node_type": NodeType.HOST, "segment": Segment.T4, "event_name": "cudaLaunchKernel", "thread": 0},
        {"node_type": NodeType.COMPUTE, "event_name": "gemm", "stream": 0, "device": 0},
    ]
    assert not launched_kernels(make_graph(rows, [(0, 1, Relation.LAUNCHES)])).any()


def test_the_predictor_counts_kernels_and_the_hosts_speed() -> None:
    cluster = load_cluster("dgx_a100")
    constants = default_constants("gpu")
    small, large = (AnalyticPredictor().predict(launches(n), cluster).latency_us[0] for n in (2, 500))
    assert large == pytest.approx(graph_launch_us(np.array([500.0]), constants)[0] / cluster.host_speed)
    assert large - small == pytest.approx(498 * constants.graph_launch_us["kernel"] / cluster.host_speed)


def test_a_fit_finds_call_and_kernel() -> None:
    graphs = [launches(n, latency_us=10.0 + 0.5 * n) for n in (1, 10, 100, 1000)]
    fitted = fit_graph_launches(graphs, default_constants())
    assert graph_launch_us(np.array([50.0]), fitted)[0] == pytest.approx(35.0, rel=0.05)


def test_without_launches_nothing_changes() -> None:
    assert fit_graph_launches([], default_constants()) == default_constants()
    assert fit_graph_launches([launches(3)], default_constants()) == default_constants()  # no labels
