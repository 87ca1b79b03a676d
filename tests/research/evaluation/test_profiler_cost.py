"""A recorded step without what the profiler costs, with numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.graph.profiler_cost import ProfilerCost, without_profiler
from research.evaluation.loading import median_cost
from research.evaluation.step_times import step_times_us
from tests.toys import make_graph


def period_us(graph: ExecutionGraph) -> float:
    """Median period of the scheduled window without its first step, whose begin is not a step's end."""
    return float(np.median(step_times_us(graph)[1:]))


def two_ranks(slow_ops: int, fast_ops: int) -> ExecutionGraph:
    """Two steps of two ranks that meet in a collective: rank 0 takes 100 us to arrive, rank 1 60 us.

    rank 0  [ T1 100, slow_ops open in it ]-.              .-[ exit 0 ]
                                             >[ transfer 10 ]
    rank 1  [ T1 60, fast_ops open ]--------'              '-[ exit 0 ]
    """
    rows: list[dict[str, object]] = []
    edges: list[tuple[int, int, str]] = []
    for step in (0, 1):
        first = len(rows)
        for rank, latency_us, ops in ((0, 100.0, slow_ops), (1, 60.0, fast_ops)):
            rows.append({"node_type": "host", "segment": "T1", "thread": 0, "rank": rank, "step": step,
                         "latency_us": latency_us, "opened_ops": ops})  # fmt: skip
        rows.append({"node_type": "collective", "rank": -1, "step": step, "latency_us": 10.0})
        edges += [(first, first + 2, "joins"), (first + 1, first + 2, "joins")]
        if step:
            edges += [(2, first, "follows"), (2, first + 1, "follows")]
    steps = tuple(StepLabel(k, f"ProfilerStep#{k}", 110.0, 110.0, (0.0, 0.0), (110.0, 110.0)) for k in (0, 1))
    return make_graph(rows, edges, ranks=(0, 1), steps=steps)


def test_the_period_is_that_of_the_schedule() -> None:
    assert period_us(two_ranks(10, 10)) == pytest.approx(110.0)


def test_correction_moves_the_step_until_another_rank_is_the_last_one() -> None:
    graph = two_ranks(10, 0)
    cost = ProfilerCost(op_us=2.0, range_us=0.0, call_us=0.0, step_us=0.0)
    assert period_us(without_profiler(graph, cost).graph) == pytest.approx(90.0)  # 100 - 20, and the transfer
    assert period_us(without_profiler(graph, cost.scaled(3.0, "")).graph) == pytest.approx(70.0)  # rank 1: 60 + 10


def test_the_median_of_measurements_is_taken_kind_by_kind() -> None:
    result = median_cost([ProfilerCost(1, 9, 0, 30), ProfilerCost(2, 5, 0, 50), ProfilerCost(9, 7, 0, 40)])
    assert result.by_kind() == {"op_us": 2.0, "range_us": 7.0, "call_us": 0.0, "step_us": 40.0}
