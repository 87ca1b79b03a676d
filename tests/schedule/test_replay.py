"""Strict replay on made-up runs whose steps take known times, and alignment of two steps by content."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import make_graph, two_rank_graph
from traces import Event, all_reduce, annotation, call, kernel, mark, op, run_of, trace

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.schedule import align, common_subsequence, fit_medians, replay_step
from gnnperf.schedule import alignment as module


def step(number: int, begin: float, *, gemm_us: float, host_us: float = 10.0) -> list[Event]:
    """A launch at 10, a gemm 5 us later, a synchronization that returns 3 us after its end; 40 us more of the host."""
    corr, sync_end = number + 1, begin + 15 + gemm_us + 3
    return [
        mark(number, begin, sync_end + 30 + host_us),
        op("aten::mm", begin + host_us - 5, begin + 25),
        call("cudaLaunchKernel", begin + 10, begin + 14, corr=corr),
        kernel("gemm", begin + 15, begin + 15 + gemm_us, corr=corr),
        call("cudaDeviceSynchronize", begin + 30, sync_end),
        op("aten::item", sync_end + 10, sync_end + 20),
    ]


def run(*gemm_us: float) -> ExecutionGraph:
    events: list[Event] = []
    begin = 0.0
    for number, duration in enumerate(gemm_us):
        events += step(number, begin, gemm_us=duration)
        begin += 15 + duration + 3 + 40  # where the step ends
    return build_graph(run_of(trace(*events)))


def test_a_step_replayed_on_itself_is_reproduced() -> None:
    graph = run(100, 100, 100)
    result = replay_step(graph, 1, 1)
    assert result.makespan_us == pytest.approx(158.0)
    assert result.period_us == pytest.approx(158.0)
    assert (result.aligned_share, result.num_unknown) == (1.0, 0)
    work = ~np.isnan(result.measured_start_us)
    np.testing.assert_allclose(result.schedule.start_us[work], result.measured_start_us[work], atol=1e-6)


def test_the_latencies_of_another_step_give_its_time_on_this_structure() -> None:
    """Structure of step 1 (gemm 100), latencies of step 2 (gemm 150): 208 us, as measured."""
    graph = run(100, 100, 150)
    result = replay_step(graph, 1, 2)
    assert result.measured.step == 2
    assert result.measured.makespan_us == 208.0
    assert result.makespan_us == pytest.approx(208.0)
    assert result.period_us == pytest.approx(208.0)


def test_the_first_step_has_no_period() -> None:
    result = replay_step(run(100, 120), 1, 0)
    assert result.period_us is None
    assert result.makespan_us == pytest.approx(158.0)


def test_a_step_after_a_missing_mark_has_no_period() -> None:
    graph = build_graph(run_of(trace(*step(0, 0, gemm_us=100), *step(2, 400, gemm_us=100))))
    assert replay_step(graph, 0, 1).period_us is None


def test_the_rest_of_an_explained_wait_is_the_median_of_other_steps_not_of_the_replayed_one() -> None:
    """The synchronization of step 2 takes 50 us to return: replayed from the other steps it takes 3."""
    events = [*step(0, 0, gemm_us=100), *step(1, 158, gemm_us=100), *step(2, 316, gemm_us=100)]
    late = [
        replace(e, end_us=e.end_us + 47) if e.name == "cudaDeviceSynchronize" and e.start_us > 316 else e
        for e in events
    ]
    late = [
        replace(e, start_us=e.start_us + 47, end_us=e.end_us + 47) if e.name == "aten::item" and e.start_us > 400 else e
        for e in late
    ]
    late = [replace(e, end_us=e.end_us + 47) if e.name == "ProfilerStep#2" else e for e in late]
    graph = build_graph(run_of(trace(*late)))
    result = replay_step(graph, 1, 2)
    assert result.measured.makespan_us == 205.0
    assert result.makespan_us == pytest.approx(158.0)


def test_unaligned_nodes_take_class_medians_and_are_counted() -> None:
    """Step 1 has an op that step 0 lacks."""
    extra = op("aten::extra", 158 + 139, 158 + 144)
    graph = build_graph(run_of(trace(*step(0, 0, gemm_us=100), *step(1, 158, gemm_us=100), extra)))
    result = replay_step(graph, 1, 0)
    assert result.aligned_share < 1.0
    unaligned = np.isnan(result.measured_start_us) & (result.graph.nodes["node_type"] == "host").to_numpy()
    assert unaligned.sum() == 2  # the op and the T1 before it
    assert np.isfinite(result.latency_us).all()


def two_ranks() -> ExecutionGraph:
    """Two ranks, two steps; rank 1 launches 50 us later: arrivals at 100 and 150, transfer 30."""
    tables = []
    for rank in (0, 1):
        events: list[Event] = []
        for number in (0, 1):
            begin, corr, late = 500.0 * number, number + 1, 50.0 * rank
            events += [
                mark(number, begin, begin + 500), op("c10d::allreduce_", begin + 5, begin + 70),
                call("cudaLaunchKernel", begin + 10 + late, begin + 12 + late, corr=corr),
                all_reduce(begin + 100 + late, begin + 180, corr=corr),
            ]  # fmt: skip
        tables.append(trace(*events, rank=rank, world_size=2))
    return build_graph(run_of(*tables))


def test_a_collective_starts_when_the_last_rank_has_arrived() -> None:
    result = replay_step(two_ranks(), 0, 1)
    collective = result.graph.nodes["node_type"] == "collective"
    assert result.schedule.start_us[collective] == pytest.approx([150.0])
    assert result.makespan_us == pytest.approx(500.0)


def test_what_is_left_of_a_host_transfer_is_the_replayed_steps_own() -> None:
    """gloo over a slow link: rank 1 has its part 0, 0 or 500 us after rank 0 by chance. A kernel's exit is a median."""
    tables = []
    for rank in (0, 1):
        events: list[Event] = []
        for k, left in enumerate((0.0, 0.0, 500.0)):
            at, end = 2000.0 * k, 2000.0 * k + 400 + left * rank
            stated = {"collective": "all_reduce", "in_elements": 64.0, "group_size": 2, "comm_dtype": "float32"}
            values = '["","","","","False","-1"]'
            events += [
                mark(k, at, at + 2000), op("c10d::allreduce_", at + 10, at + 20, input_values=values, **stated),
                annotation("gloo:all_reduce", at + 15, end, thread=9, **stated), op("aten::mm", end + 10, at + 1990),
            ]  # fmt: skip
        tables.append(trace(*events, rank=rank, world_size=2, backend="gloo"))
    result = replay_step(build_graph(run_of(*tables)), 0, 2)
    leave = (result.graph.nodes["segment"] == "exit").to_numpy()
    assert result.latency_us[leave].tolist() == [0.0, 500.0]
    mm = (result.graph.nodes["op_name"] == "aten::mm") & (result.graph.nodes["node_type"] == "host")
    assert result.schedule.end_us[mm.to_numpy()].tolist() == [410.0, 910.0]


def test_one_of_n_ranks_replays_wait_and_transfer_as_one() -> None:
    table = [
        mark(0, 0, 300), op("c10d::allreduce_", 5, 20), call("cudaLaunchKernel", 10, 12, corr=1),
        all_reduce(20, 280, corr=1, size=4), mark(1, 300, 600), op("c10d::allreduce_", 305, 320),
        call("cudaLaunchKernel", 310, 312, corr=2), all_reduce(320, 650, corr=2, size=4),
    ]  # fmt: skip
    graph = build_graph(run_of(trace(*table, world_size=4)))
    result = replay_step(graph, 0, 1)
    assert result.makespan_us == pytest.approx(350.0)  # 10 to the launch, 10 lag, 330 in the kernel
    assert result.num_unknown == 0


def test_a_single_step_is_fitted_on_the_other_ranks() -> None:
    """The toy: rank 0's synchronization takes the 5 us of rank 1's, and the other way round."""
    graph = two_rank_graph()
    nodes = graph.nodes.copy()
    sync = np.flatnonzero(nodes["op_name"] == "cudaDeviceSynchronize")
    nodes["event_name"] = nodes["event_name"].astype(object)
    nodes.loc[sync, ["segment", "event_name"]] = "T4", "cudaDeviceSynchronize"
    nodes["event_name"] = nodes["event_name"].astype("category")
    nodes.loc[sync[1], "latency_us"] = 9.0
    nodes["content_key"] = np.arange(len(nodes))
    result = replay_step(replace(graph, nodes=nodes), 0, 0)
    assert result.latency_us[sync].tolist() == [9.0, 5.0]
    assert result.makespan_us == pytest.approx(189.0)
    assert result.aligned_share == 1.0


def test_medians_fall_back_from_fine_to_coarse_classes() -> None:
    graph = run(100, 100, 130)
    medians = fit_medians(graph, (graph.nodes["step"] < 2).to_numpy())
    last = graph.step(2)
    kernels = (last.nodes["node_type"] == "compute").to_numpy()
    assert medians.latency_us(last)[kernels].tolist() == [100.0]
    events = last.nodes["event_name"].astype(object).astype("category").cat.rename_categories({"gemm": "other"})
    renamed = replace(last, nodes=last.nodes.assign(event_name=events))
    assert medians.latency_us(renamed)[kernels].tolist() == [100.0]  # by node type by itself
    nothing = fit_medians(graph, np.zeros(graph.num_nodes, dtype=bool))
    assert np.isnan(nothing.latency_us(last)).all()


def test_lags_are_zero_without_a_class_and_unknown_without_a_measurement() -> None:
    graph = run(100, 100)
    medians = fit_medians(graph, (graph.nodes["step"] == 0).to_numpy())
    lag = dict(zip(graph.edges["lag_class"].astype(object).fillna("none"), medians.lag_us(graph), strict=True))
    assert lag["launch"] == 5.0
    assert lag["none"] == 0.0
    nothing = fit_medians(graph, np.zeros(graph.num_nodes, dtype=bool)).lag_us(graph)
    classed = graph.edges["lag_class"].notna().to_numpy()
    assert np.isnan(nothing[classed]).all()
    assert (nothing[~classed] == 0).all()


KEYS = st.lists(st.integers(0, 3), max_size=12)


def longest(a: list[int], b: list[int]) -> int:
    """Length of a longest common subsequence, by the textbook table."""
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1, j + 1] = table[i, j] + 1 if x == y else max(table[i, j + 1], table[i + 1, j])
    return int(table[-1, -1])


@settings(max_examples=150)
@given(KEYS, KEYS)
def test_a_longest_common_subsequence_is_detected(a: list[int], b: list[int]) -> None:
    at_a, at_b = common_subsequence(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64))
    assert [a[i] for i in at_a] == [b[j] for j in at_b]
    assert (np.diff(at_a) > 0).all()
    assert (np.diff(at_b) > 0).all()
    assert len(at_a) == longest(a, b)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_sequences_too_different_are_matched_by_occurrence(a: list[int], b: list[int]) -> None:
    """Whatever the method, a pair has one key and no element is used twice."""
    at_a, at_b = module._by_occurrence(np.array(a), np.array(b))
    assert [a[i] for i in at_a] == [b[j] for j in at_b]
    assert len(set(at_a)) == len(at_a)
    assert len(set(at_b)) == len(at_b)
    assert len(at_a) == sum(min(a.count(k), b.count(k)) for k in set(a))


def test_outside_the_most_edits_the_fallback_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_EDITS", 2)
    at_a, at_b = common_subsequence(np.array([1, 2, 3, 4]), np.array([9, 8, 3, 2]))
    assert sorted(zip(at_a.tolist(), at_b.tolist(), strict=True)) == [(1, 3), (2, 2)]
    nothing = common_subsequence(np.array([1, 2, 3]), np.array([4, 5, 6]))
    assert nothing.shape == (2, 0)


def lane(keys: list[int], *, thread: int = 0) -> list[dict[str, object]]:
    return [
        {"node_type": NodeType.HOST, "segment": Segment.T5, "thread": thread, "latency_us": 1.0, "content_key": k}
        for k in keys
    ]


def lanes(*lanes_of_keys: list[int]) -> ExecutionGraph:
    return make_graph([row for t, keys in enumerate(lanes_of_keys) for row in lane(keys, thread=t)], [])


def test_steps_are_aligned_lane_by_lane() -> None:
    """Lane 0: A B C D F against A B D E F; equal keys of another lane do not count."""
    a, b = lanes([1, 2, 3, 4, 6], [7]), lanes([1, 2, 4, 5, 6], [3])
    assert align(a, b).tolist() == [0, 1, -1, 2, 4, -1]


def test_a_lane_that_the_other_step_lacks_stays_unaligned() -> None:
    assert align(lanes([1], [2, 3]), lanes([1])).tolist() == [0, -1, -1]


def test_a_collective_matches_the_one_its_parts_join() -> None:
    graph = two_rank_graph()
    keyed = replace(graph, nodes=graph.nodes.assign(content_key=np.arange(graph.num_nodes)))
    matched = align(keyed, keyed)
    assert matched[:15].tolist() == list(range(15))
    assert (matched[15:] == -1).all()  # hardware is not aligned
    # Without its arrivals, a collective has nothing to match by.
    other = keyed.nodes.copy()
    other.loc[other["segment"] == "arrive", "content_key"] = -1
    assert align(keyed, replace(keyed, nodes=other))[14] == -1


def test_a_wait_for_untraced_peers_matches_with_its_arrival() -> None:
    comm = {"node_type": NodeType.COMM, "device": 0, "stream": 0, "latency_us": 0.0}
    rows = [
        {**comm, "segment": Segment.ARRIVE, "content_key": 1}, {**comm, "segment": Segment.EXIT, "content_key": 2},
        {"node_type": NodeType.COLLECTIVE, "rank": -1}, {"node_type": NodeType.HOST, "segment": Segment.PEER_WAIT},
    ]  # fmt: skip
    edges = [(0, 3, Relation.FOLLOWS), (3, 2, Relation.JOINS), (2, 1, Relation.RELEASES)]
    graph = make_graph(rows, edges)
    assert align(graph, graph).tolist() == [0, 1, 2, 3]
