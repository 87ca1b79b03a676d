"""The gradient of the step time: visits by hand, the schedule's own step time, finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import make_graph, two_rank_graph

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import schedule
from gnnperf.schedule.path_counts import NUM_UNROLLED, StepVisits, constraints_of, step_visits

TWO_RANKS = two_rank_graph()


def asynchronous(host_us: float, kernel_us: float) -> ExecutionGraph:
    """A launch (5 us), more host time, and the kernel it launched; no one waits for the kernel."""
    host = {"node_type": NodeType.HOST, "segment": Segment.T5, "thread": 0}
    kernel = {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0, "latency_us": kernel_us}
    edges = [(0, 1, Relation.FOLLOWS), (0, 2, Relation.LAUNCHES)]
    return make_graph([{**host, "latency_us": 5.0}, {**host, "latency_us": host_us}, kernel], edges)


def latencies(graph: ExecutionGraph) -> np.ndarray:
    return np.nan_to_num(graph.nodes["latency_us"].to_numpy(np.float64))


def result(
    graph: ExecutionGraph, copies: int, latency_us: np.ndarray | None = None, lag: float | None = None
) -> StepVisits:
    lag_us = np.full(len(graph.edges), lag or 0.0)
    return step_visits(constraints_of(graph, lag_us, copies), latencies(graph) if latency_us is None else latency_us)


def test_the_makespan_of_two_ranks_by_hand() -> None:
    """Rank 1: T2, the launch (its start only), gemm, arrival; the all-reduce; exit and T1 of rank 0, first of two."""
    answer = result(TWO_RANKS, 1)
    assert answer.step_us == 185.0
    assert answer.rest_us == 0.0
    assert np.flatnonzero(answer.visits).tolist() == [5, 6, 7, 10, 11, 14]
    assert set(answer.visits[[5, 6, 7, 10, 11, 14]]) == {1.0}


def test_lags_are_the_rest_by_hand() -> None:
    """2 us on each edge: T2 to the launch, to the gemm, to arrival, joining, release, the wait."""
    assert result(TWO_RANKS, 1, lag=2.0).rest_us == pytest.approx(6 * 2.0)


@pytest.mark.parametrize(
    ("host_us", "kernel_us", "period_us", "visits"),
    [(20.0, 10.0, 25.0, [1.0, 1.0, 0.0]), (20.0, 100.0, 100.0, [0.0, 0.0, 1.0])],
)
def test_a_period_by_hand(host_us: float, kernel_us: float, period_us: float, visits: list[float]) -> None:
    """Host-bound: each step adds its host time. Bound by kernels: one more kernel, whatever the host does."""
    answer = result(asynchronous(host_us, kernel_us), NUM_UNROLLED)
    assert answer.step_us == period_us
    assert answer.visits.tolist() == visits


def test_a_makespan_of_the_same_program_by_hand() -> None:
    assert result(asynchronous(20.0, 100.0), 1).visits.tolist() == [0.0, 0.0, 1.0]  # the kernel starts with its launch


@given(st.lists(st.floats(0.1, 1000.0), min_size=18, max_size=18), st.sampled_from([1, 2, NUM_UNROLLED]))
def test_it_is_the_step_time_of_the_schedule_and_its_gradient(drawn: list[float], copies: int) -> None:
    work = TWO_RANKS.nodes["node_type"].isin(["device", "link"]).to_numpy()
    latency_us = np.where(work, 0.0, drawn)
    lag_us = np.linspace(0.0, 3.0, len(TWO_RANKS.edges))
    constraints = constraints_of(TWO_RANKS, lag_us, copies)
    here = step_visits(constraints, latency_us)
    scheduled = schedule(TWO_RANKS, latency_us, lag_us, num_unrolled=copies)
    assert here.step_us == pytest.approx(scheduled.makespan_us if copies == 1 else scheduled.period_us)
    assert here.step_us == pytest.approx(here.visits @ latency_us + here.rest_us)
    moved = 1e-7
    for node in range(15):
        ahead, back = (step_visits(constraints, latency_us + sign * moved * (np.arange(18) == node))
                       for sign in (1.0, -1.0))  # fmt: skip
        slopes = [(ahead.step_us - here.step_us) / moved, (here.step_us - back.step_us) / moved]
        if abs(slopes[0] - slopes[1]) < 1e-3:  # no other path is as long
            assert here.visits[node] == pytest.approx(slopes[0], abs=1e-3)


def test_what_cannot_be_scheduled_is_refused() -> None:
    with pytest.raises(InputError, match="lag_us"):
        constraints_of(TWO_RANKS, np.full(len(TWO_RANKS.edges), np.nan), 1)
    with pytest.raises(InputError, match="num_unrolled"):
        constraints_of(TWO_RANKS, np.zeros(len(TWO_RANKS.edges)), 0)
