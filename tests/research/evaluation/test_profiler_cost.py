"""What the profiler does to a step, and costs fitted on it, with numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from toys import make_graph

from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.graph.profiler_cost import ProfilerCost, without_profiler
from research.evaluation.profiler_cost import Effect, effect, fit_cost, fit_factor, median_cost, period_us


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


def test_events_count_where_they_lengthen_the_step() -> None:
    assert effect("a", two_ranks(10, 30), 90.0).events == pytest.approx([10, 0, 0, 0])  # rank 1 waits anyway
    assert effect("a", two_ranks(0, 30), 90.0).events == pytest.approx([0, 0, 0, 0])


def test_correction_moves_the_step_until_another_rank_is_the_last_one() -> None:
    graph = two_ranks(10, 0)
    cost = ProfilerCost(op_us=2.0, range_us=0.0, call_us=0.0, step_us=0.0)
    assert period_us(without_profiler(graph, cost).graph) == pytest.approx(90.0)  # 100 - 20, and the transfer
    assert period_us(without_profiler(graph, cost.scaled(3.0, "")).graph) == pytest.approx(70.0)  # rank 1: 60 + 10


def made_up(ops: float, steps: float, without_us: float, cost: tuple[float, float], run: str = "a") -> Effect:
    """A run whose profiled step is longer by exactly what its events cost."""
    added_us = ops * cost[0] + steps * cost[1]
    return Effect(run, without_us, without_us + added_us, np.array([ops, 0.0, 0.0, steps]))


def test_the_fit_finds_the_costs_that_runs_were_made_with() -> None:
    effects = [made_up(ops, 1.0, us, (1.5, 40.0)) for ops, us in ((1000, 8e3), (1500, 30e3), (400, 4e3), (2000, 20e3))]
    result = fit_cost(effects)
    assert (result.op_us, result.step_us) == (pytest.approx(1.5, rel=1e-3), pytest.approx(40.0, rel=1e-2))
    assert (result.range_us, result.call_us) == (result.op_us, 0.0)
    assert "4 runs" in result.provenance


def test_one_disturbed_run_does_not_move_the_fit() -> None:
    effects = [made_up(ops, 1.0, 20e3, (1.0, 0.0)) for ops in (500, 1000, 1500, 2000, 2500)]
    disturbed = Effect("b", 20e3, 60e3, np.array([1200.0, 0.0, 0.0, 1.0]))
    assert fit_cost([*effects, disturbed]).op_us == pytest.approx(1.0, rel=1e-2)
    cost = ProfilerCost(0.5, 0.0, 0.0, 0.0)
    assert fit_factor([*effects, disturbed], cost) == pytest.approx(2.0, rel=1e-2)


def test_costs_are_never_negative() -> None:
    faster = [Effect("a", 10e3, 9.5e3, np.array([1000.0, 0.0, 0.0, 1.0])) for _ in range(3)]
    assert set(fit_cost(faster).by_kind().values()) == {0.0}
    assert fit_factor(faster, ProfilerCost(1.0, 1.0, 0.0, 40.0)) == 0.0


def test_the_factor_of_one_run_explains_that_run() -> None:
    own = Effect("a", 10_000.0, 12_000.0, np.array([1000.0, 0.0, 0.0, 1.0]))
    assert fit_factor([own], ProfilerCost(0.96, 0.0, 0.0, 40.0)) == pytest.approx(2.0)  # 1000 x 0.96 + 40 = 1000 us


def test_the_median_of_measurements_is_taken_kind_by_kind() -> None:
    result = median_cost([ProfilerCost(1, 9, 0, 30), ProfilerCost(2, 5, 0, 50), ProfilerCost(9, 7, 0, 40)])
    assert result.by_kind() == {"op_us": 2.0, "range_us": 7.0, "call_us": 0.0, "step_us": 40.0}
