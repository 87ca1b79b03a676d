"""Graphs without the profiler's own cost, with numbers computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import make_graph

from gnnperf.core.errors import InputError
from gnnperf.graph import ProfilerCost, cost_of_card
from gnnperf.graph.execution_graph import STEP_END, ExecutionGraph, StepLabel
from gnnperf.graph.profiler_cost import node_cost_us
from research.evaluation.interventions import step_times_us
from research.evaluation.loading import median_cost, without_profiler

COST = ProfilerCost(op_us=2.0, range_us=3.0, call_us=1.0, step_us=40.0)
FOLLOWS = [(0, 1, "follows"), (1, 2, "follows")]


def row(segment: str | None, latency_us: float, ops: int = 0, ranges: int = 0, **columns: object) -> dict[str, object]:
    """A node on the main thread of rank 0."""
    return {"node_type": "host" if segment else "compute", "thread": 0, "segment": segment, "latency_us": latency_us,
            "opened_ops": ops, "opened_ranges": ranges, **columns}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "latency"),
    [
        # gap: one op, one range: 2 + 3; op: two children: 4; call: 1
        ([row("T1", 10, 1, 1), row(None, 100, 2), row("T4", 6)], [5.0, 96.0, 5.0]),
        # what a short node cannot give comes out of the next one
        ([row("T1", 0.5, 1), row(None, 1.0), row("T1", 4, 1)], [0.0, 0.0, 1.5]),
        # what no node can give stays in; of another thread or rank nothing is taken, nor after a wait
        ([row("T1", 1.0, 3)], [0.0]),
        ([row("T1", 1.0, 3), row(None, 50, thread=1)], [0.0, 50.0]),
        ([row("T1", 1.0, 3), row(None, 50, rank=1)], [0.0, 50.0]),
        ([row("T1", 1.0, 3), row("T1", 50, 1, blocked_us=7.0)], [0.0, 48.0]),
        # the mark between steps costs the step before it; nothing opens in the last one: the profiler ends there
        ([row("T1", 100, 0, 1, op_name=STEP_END), row("T1", 100, 0, 0, op_name=STEP_END)], [57.0, 100.0]),
        # unknown latencies stay unknown and give nothing
        ([row("T1", np.nan, 1), row(None, 10.0)], [np.nan, 8.0]),
    ],
)
def test_nodes_are_shortened_by_the_events_that_open_in_them(
    rows: list[dict[str, object]], latency: list[float]
) -> None:
    result = without_profiler(make_graph(rows, []), COST)
    assert result.nodes["latency_us"].tolist() == pytest.approx(latency, nan_ok=True)


def launched(segment: str | None) -> ExecutionGraph:
    """An op, and the collective that it starts 20 us after its own start; one child opens in the op."""
    rows = [row(segment, 30, 1), {"node_type": "comm", "segment": "arrive", "latency_us": 0.0}]
    return make_graph(rows, [(0, 1, "launches")], lags={(0, 1): ("launch", 20.0)})


@pytest.mark.parametrize(("segment", "lag_us"), [("T5", 20.0 - 2.0 - 3.0), ("T4", 20.0)])  # T4: a device launch stays
def test_a_host_collective_starts_earlier_by_its_ops_events_and_its_own(segment: str, lag_us: float) -> None:
    assert without_profiler(launched(segment), COST).edges["lag_us"].tolist() == [lag_us]


def test_everything_else_of_the_graph_stays() -> None:
    graph = make_graph([row("T1", 10, 1), row(None, 20), row("T1", 5, 1)], FOLLOWS)
    result = without_profiler(graph, COST)
    changed = ["latency_us"]
    assert result.nodes.drop(columns=changed).equals(graph.nodes.drop(columns=changed))
    assert result.edges.equals(graph.edges)


@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=8),
    st.floats(0, 20), st.floats(0, 20),
)  # fmt: skip
def test_no_more_is_taken_than_is_due_and_nothing_becomes_negative(
    nodes: list[tuple[float, int, int]], op_us: float, range_us: float
) -> None:
    cost = ProfilerCost(op_us, range_us, 0.0, 0.0)
    graph = make_graph([row("T1", *n) for n in nodes], [])
    latency = without_profiler(graph, cost).nodes["latency_us"].to_numpy()
    assert (latency >= 0).all()
    assert graph.nodes["latency_us"].sum() - latency.sum() <= node_cost_us(graph.nodes, cost).sum() + 1e-6


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_cost_is_a_number_from_0(value: float) -> None:
    with pytest.raises(InputError, match="op_us"):
        ProfilerCost(value, 0.0, 0.0, 0.0)


def test_the_cost_of_a_card_is_the_mean_over_its_ranks() -> None:
    part = {"op_us": 1.0, "range_us": 2.0, "call_us": 0.0, "step_us": 30.0}
    card = {"ranks": [{"profiler_cost": part}, {"profiler_cost": {**part, "op_us": 2.0}}, {}]}
    result = cost_of_card(card)
    assert result is not None
    assert result.by_kind() == {**part, "op_us": 1.5}
    assert cost_of_card({"ranks": [{}]}) is None
    assert cost_of_card({}) is None


def test_a_card_with_half_a_cost_is_refused() -> None:
    with pytest.raises(InputError, match="profiler"):
        cost_of_card({"ranks": [{"profiler_cost": {"op_us": 1.0}}]})


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


def test_correction_moves_the_step_until_another_rank_is_the_last_one() -> None:
    graph = two_ranks(10, 0)
    assert period_us(graph) == pytest.approx(110.0)
    cost = ProfilerCost(op_us=2.0, range_us=0.0, call_us=0.0, step_us=0.0)
    assert period_us(without_profiler(graph, cost)) == pytest.approx(90.0)  # 100 - 20, and the transfer
    cost = ProfilerCost(op_us=6.0, range_us=0.0, call_us=0.0, step_us=0.0)
    assert period_us(without_profiler(graph, cost)) == pytest.approx(70.0)  # rank 1: 60 + 10


def test_the_median_of_measurements_is_taken_kind_by_kind() -> None:
    result = median_cost([ProfilerCost(1, 9, 0, 30), ProfilerCost(2, 5, 0, 50), ProfilerCost(9, 7, 0, 40)])
    assert result.by_kind() == {"op_us": 2.0, "range_us": 7.0, "call_us": 0.0, "step_us": 40.0}
