"""Start times, makespan, period, slack and critical path, by hand and by property."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import make_graph, two_rank_graph

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import Schedule, schedule, timed_edges


def run(graph: ExecutionGraph, **options: object) -> Schedule:
    latency = np.nan_to_num(graph.nodes["latency_us"].to_numpy())
    return schedule(graph, latency, np.zeros(len(graph.edges)), **options)  # type: ignore[arg-type]


def host(latency_us: float, **columns: object) -> dict[str, object]:
    return {"node_type": NodeType.HOST, "segment": Segment.T5, "thread": 0, "latency_us": latency_us, **columns}


def gpu(latency_us: float, **columns: object) -> dict[str, object]:
    return {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0, "latency_us": latency_us, **columns}


def test_two_ranks() -> None:
    """Gemms from 10 (the launch's start) to 110 and 130; the all-reduce from 130 to 180; the host ends at 185."""
    result = run(two_rank_graph())
    assert (result.makespan_us, result.period_us) == (185.0, None)
    assert result.start_us[:7].tolist() == [0, 10, 15, 10, 110, 180, 180]
    assert result.start_us[7:14].tolist() == [0, 10, 15, 10, 130, 180, 180]
    assert result.start_us[14] == 130.0
    assert result.rank_step_time_us.tolist() == [185.0, 185.0]
    # rank 1: T2, T4, gemm, arrive; the collective; either rank's exit and T1 (both end at 185: the first is taken).
    assert np.flatnonzero(result.on_critical_path).tolist() == [5, 6, 7, 8, 10, 11, 14]
    assert result.slack_us[:7].tolist() == [20, 20, 155, 20, 20, 0, 0]  # rank 0 may be 20 us later; T3: 180 - 25
    assert result.slack_us[7:14].tolist() == [0, 0, 155, 0, 0, 0, 0]
    assert result.slack_us[14] == 0.0


def test_a_launch_is_from_start_to_start() -> None:
    launch, kernel = host(40.0), gpu(10.0)
    result = run(make_graph([launch, kernel], [(0, 1, Relation.LAUNCHES)]))
    assert result.start_us.tolist() == [0.0, 0.0]
    assert result.makespan_us == 40.0
    result = run(make_graph([launch, kernel], [(0, 1, Relation.WAITS)]))
    assert result.start_us.tolist() == [0.0, 40.0]


def test_slack_of_a_launch_is_bound_by_its_kernel_and_not_by_its_own_latency() -> None:
    """The kernel 0 to 100 is critical, so its launch may not start later, though the launch itself is done at 5."""
    result = run(make_graph([host(5.0), gpu(100.0), host(1.0)], [(0, 1, Relation.LAUNCHES), (0, 2, Relation.FOLLOWS)]))
    assert result.slack_us.tolist() == [0.0, 0.0, 94.0]


def test_lags_delay_along_their_edge() -> None:
    graph = make_graph([host(5.0), gpu(10.0)], [(0, 1, Relation.LAUNCHES)])
    result = schedule(graph, graph.nodes["latency_us"].to_numpy(), np.array([7.0]))
    assert (result.start_us.tolist(), result.makespan_us) == ([0.0, 7.0], 17.0)


def test_edges_that_do_not_constrain_time_are_ignored() -> None:
    graph = make_graph([host(5.0), gpu(10.0)], [(0, 1, Relation.FEEDS), (1, 0, Relation.FEEDS)])
    assert run(graph).start_us.tolist() == [0.0, 0.0]


def test_edges_are_sorted_once_for_a_table_and_number_of_nodes() -> None:
    graph = two_rank_graph()
    first = timed_edges(graph)
    assert timed_edges(replace(graph, name="again")) is first
    copied = timed_edges(replace(graph, edges=graph.edges.copy()))
    assert copied is not first and copied.order.tolist() == first.order.tolist()
    more = pd.concat([graph.nodes, graph.nodes.tail(1)], ignore_index=True)
    assert len(timed_edges(replace(graph, nodes=more)).order) == graph.num_nodes + 1


def test_ready_times_hold_the_first_copy_back() -> None:
    graph = make_graph([host(5.0), gpu(10.0)], [(0, 1, Relation.LAUNCHES)])
    result = run(graph, ready_us=np.array([0.0, 30.0]))
    assert (result.start_us.tolist(), result.makespan_us) == ([0.0, 30.0], 40.0)
    # A stream still busy with earlier work is no cause within the step: the path ends there.
    assert result.on_critical_path.tolist() == [False, True]


def host_bound() -> ExecutionGraph:
    """Host 3 x 20 us, kernel 10 us launched by the second segment."""
    rows = [host(20.0), host(20.0), host(20.0), gpu(10.0)]
    return make_graph(rows, [(0, 1, Relation.FOLLOWS), (1, 2, Relation.FOLLOWS), (1, 3, Relation.LAUNCHES)])


def device_bound() -> ExecutionGraph:
    """Host 2 x 5 us runs ahead of a stream with 2 x 100 us."""
    rows = [host(5.0), host(5.0), gpu(100.0), gpu(100.0)]
    edges = [(0, 1, "follows"), (0, 2, "launches"), (1, 3, "launches"), (2, 3, "follows")]
    return make_graph(rows, edges)


def test_period_is_that_of_the_host_or_of_the_stream() -> None:
    """One copy takes 200 us. Copy k starts at 10 k on the host and ends at 200 (k + 1) on the device."""
    result = run(host_bound(), num_unrolled=3)
    assert (result.period_us, result.makespan_us) == (60.0, 60.0)
    assert run(device_bound()).makespan_us == 200.0
    result = run(device_bound(), num_unrolled=4)
    assert result.period_us == 200.0
    assert result.makespan_us == 800.0 - 30.0  # the host is three steps of 10 us in when the last one starts
    assert result.start_us.tolist() == [0.0, 5.0, 600.0 - 30.0, 700.0 - 30.0]


def test_a_synchronizing_step_has_the_period_of_one_step() -> None:
    result = run(two_rank_graph(), num_unrolled=3)
    assert (result.period_us, result.makespan_us) == (185.0, 185.0)


def test_zero_copies_and_cycles_are_refused() -> None:
    with pytest.raises(InputError, match="num_unrolled"):
        run(host_bound(), num_unrolled=0)
    rows = [host(1.0), host(1.0), host(1.0)]
    graph = make_graph(rows, [(0, 1, "follows"), (1, 2, "follows"), (2, 1, "waits")])
    with pytest.raises(InputError, match=r"2 nodes wait for each other in a cycle \(first: \[1, 2\]\)"):
        run(graph)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_latency_that_is_not_finite_is_refused(bad: float) -> None:
    graph = host_bound()
    latency = graph.nodes["latency_us"].to_numpy(copy=True)
    latency[2] = bad
    with pytest.raises(InputError, match=r"latency_us is not finite at 1 of \d+ \(first: .*node 2, rank 0\)"):
        schedule(graph, latency, np.zeros(len(graph.edges)))
    with pytest.raises(InputError, match="lag_us is not finite"):
        schedule(graph, graph.nodes["latency_us"].to_numpy(), np.full(len(graph.edges), bad))
    with pytest.raises(InputError, match=r"latency_us has shape \[3\]"):
        schedule(graph, np.zeros(3), np.zeros(len(graph.edges)))


LATENCIES = st.lists(st.floats(0, 1000, allow_nan=False), min_size=1, max_size=8)
TIMED = st.sampled_from([Relation.FOLLOWS, Relation.LAUNCHES, Relation.WAITS])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[ExecutionGraph, np.ndarray]:
    """A directed acyclic graph (edges run from lower to higher nodes) and its lags."""
    latency = draw(LATENCIES)
    pairs = [(i, j) for i in range(len(latency)) for j in range(i + 1, len(latency))]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    rows = [host(x, thread=i) for i, x in enumerate(latency)]
    graph = make_graph(rows, [(i, j, draw(TIMED)) for i, j in edges])
    return graph, np.array([draw(st.floats(0, 50)) for _ in edges])


def makespan(graph: ExecutionGraph, lag: np.ndarray, latency: np.ndarray | None = None) -> float:
    own = graph.nodes["latency_us"].to_numpy()
    return schedule(graph, own if latency is None else latency, lag).makespan_us


@given(graphs(), st.data())
def test_an_edge_more_never_shortens(drawn: tuple[ExecutionGraph, np.ndarray], data: st.DataObject) -> None:
    graph, lag = drawn
    if not len(graph.edges):
        return
    gone = data.draw(st.integers(0, len(graph.edges) - 1))
    fewer = replace(graph, edges=graph.edges.drop(index=gone).reset_index(drop=True))
    assert makespan(fewer, np.delete(lag, gone)) <= makespan(graph, lag) + 1e-9


@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_edge_rows_is_irrelevant(drawn: tuple[ExecutionGraph, np.ndarray], random) -> None:  # type: ignore[no-untyped-def]
    graph, lag = drawn
    rows = list(range(len(graph.edges)))
    random.shuffle(rows)
    shuffled = replace(graph, edges=graph.edges.iloc[rows].reset_index(drop=True))
    latency = graph.nodes["latency_us"].to_numpy()
    before, after = schedule(graph, latency, lag), schedule(shuffled, latency, lag[rows])
    np.testing.assert_array_equal(before.start_us, after.start_us)
    np.testing.assert_allclose(before.slack_us, after.slack_us, atol=1e-9)
    assert before.makespan_us == after.makespan_us


@given(graphs(), st.data())
def test_more_latency_is_never_earlier(drawn: tuple[ExecutionGraph, np.ndarray], data: st.DataObject) -> None:
    graph, lag = drawn
    latency = graph.nodes["latency_us"].to_numpy(copy=True)
    before = schedule(graph, latency, lag)
    node = data.draw(st.integers(0, len(latency) - 1))
    latency[node] += data.draw(st.floats(0, 100))
    after = schedule(graph, latency, lag)
    assert (after.start_us >= before.start_us).all()
    assert after.makespan_us >= before.makespan_us


@given(graphs(), st.data())
def test_slack_is_exactly_the_slack_there_is(drawn: tuple[ExecutionGraph, np.ndarray], data: st.DataObject) -> None:
    """Starting a node later by its slack keeps the makespan; by 1 us more, it grows by 1 us."""
    graph, lag = drawn
    latency = graph.nodes["latency_us"].to_numpy()
    before = schedule(graph, latency, lag)
    node = data.draw(st.integers(0, len(latency) - 1))
    for extra in (0.0, 1.0):
        ready = np.zeros(len(latency))
        ready[node] = before.start_us[node] + before.slack_us[node] + extra
        assert schedule(graph, latency, lag, ready_us=ready).makespan_us == pytest.approx(before.makespan_us + extra)


@given(graphs())
def test_the_critical_path_is_as_long_as_the_step(drawn: tuple[ExecutionGraph, np.ndarray]) -> None:
    graph, lag = drawn
    result = schedule(graph, graph.nodes["latency_us"].to_numpy(), lag)
    path = result.on_critical_path
    assert result.end_us[path].max() == pytest.approx(result.makespan_us, abs=1e-6)  # a picosecond
    assert result.start_us[path].min() == 0.0
    np.testing.assert_allclose(result.slack_us[path], 0.0, atol=1e-6)
