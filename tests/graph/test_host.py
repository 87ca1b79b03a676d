"""Host time cut into T1 to T5."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import MAIN, Event, annotation, call, graph_of, kernel, mark, op, run_of, trace

from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.graph.event_columns import RankEvents, is_dispatcher_op, rank_events
from gnnperf.graph.host import SEGMENTS, Pieces, host_pieces
from gnnperf.trace.table import TraceTable


def cut(*events: Event, marks_us: tuple[float, ...] = ()) -> tuple[RankEvents, Pieces]:
    table = trace(*events)
    ranks = rank_events(table, 0)
    marks = np.array([round(m * 1000) for m in marks_us], dtype=np.int64)
    return ranks, host_pieces(ranks, MAIN, marks)


def timeline(*events: Event, marks_us: tuple[float, ...] = (), thread: int = MAIN) -> list[tuple[str, float, float]]:
    """(segment, begin, end) in us of one thread, in order of execution."""
    _, pieces = cut(*events, marks_us=marks_us)
    rows = np.flatnonzero(pieces.thread == thread)
    return [(str(SEGMENTS[pieces.segment[i]]), pieces.begin_ns[i] / 1000, pieces.end_ns[i] / 1000) for i in rows]


A, MM = op("aten::a", 0, 10), op("aten::mm", 0, 50)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # all five segments
        ((op("aten::first", 0, 5), op("aten::mm", 10, 100), call("cudaLaunchKernel", 30, 40, corr=1),
          call("cudaLaunchKernel", 60, 65, corr=2)),
         [("T5", 0, 5), ("T1", 5, 10), ("T2", 10, 30), ("T4", 30, 40), ("T5", 40, 60), ("T4", 60, 65),
          ("T3", 65, 100)]),
        # those of no length stay, so that steps align
        ((A, op("aten::mm", 10, 20), call("cudaLaunchKernel", 10, 20, corr=1)),
         [("T5", 0, 10), ("T1", 10, 10), ("T2", 10, 10), ("T4", 10, 20), ("T3", 20, 20)]),
        # a range around ops is a scope, a leaf range is an op
        ((op("autograd::engine::evaluate_function: MmBackward0", 0, 100), op("MmBackward0", 10, 90),
          op("aten::mm", 20, 40), op("aten::mm", 60, 80), op("MyCustomFunction", 110, 120)),
         [("T5", 20, 40), ("T1", 40, 60), ("T5", 60, 80), ("T1", 80, 110), ("T5", 110, 120)]),
        # annotations are scopes even around nothing
        ((annotation("forward", 0, 30), op("aten::a", 5, 10), op("aten::b", 20, 25)),
         [("T5", 5, 10), ("T1", 10, 20), ("T5", 20, 25)]),
        # a driver call inside a runtime call belongs to it
        ((MM, call("cudaLaunchKernel", 10, 30, corr=1), call("cuLaunchKernel", 12, 28, corr=2)),
         [("T2", 0, 10), ("T4", 10, 30), ("T3", 30, 50)]),
        # allocations and event calls are latency of their op
        ((op("aten::empty", 0, 50), call("cudaMalloc", 10, 40), call("cudaEventRecord", 41, 42)), [("T5", 0, 50)]),
        # whatever starts device work is a launch under any name
        ((op("x::y", 0, 50), call("vendorLaunchThing", 10, 40, corr=3), kernel("k", 45, 60, corr=3)),
         [("T2", 0, 10), ("T4", 10, 40), ("T3", 40, 50)]),
        # ops that overlap in part do not nest, and the gap is not counted twice
        ((op("aten::a", 0, 20), op("aten::b", 15, 30), op("aten::c", 40, 50)),
         [("T5", 0, 20), ("T1", 15, 15), ("T5", 15, 30), ("T1", 30, 40), ("T5", 40, 50)]),
    ],
)  # fmt: skip
def test_segments_of_a_thread(events: Sequence[Event], expected: list[tuple[str, float, float]]) -> None:
    assert timeline(*events) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # it cuts a gap in two
        ((A, op("aten::b", 30, 40)), [("T5", 0, 10), ("T1", 10, 25), ("T1", 25, 30), ("T5", 30, 40)]),
        # an op that starts with its step lies after it
        ((op("aten::a", 0, 25), op("aten::b", 25, 40)),
         [("T5", 0, 25), ("T1", 25, 25), ("T1", 25, 25), ("T5", 25, 40)]),
        # inside an op it does not count the op's time twice
        ((op("aten::a", 0, 40), op("aten::b", 50, 60)),
         [("T5", 0, 40), ("T1", 25, 25), ("T1", 40, 50), ("T5", 50, 60)]),
    ],
)  # fmt: skip
def test_a_step_boundary_at_25_us(events: Sequence[Event], expected: list[tuple[str, float, float]]) -> None:
    assert timeline(*events, marks_us=(25,)) == expected


def test_the_outermost_operator_is_the_op() -> None:
    events, pieces = cut(op("aten::linear", 0, 50), op("aten::addmm", 5, 45), call("cudaLaunchKernel", 10, 20, corr=1))
    assert [str(events.name[i]) for i in pieces.op] == ["aten::linear"] * 3
    assert [SEGMENTS[code] for code in pieces.segment] == ["T2", "T4", "T3"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::mm", True), ("c10d::allreduce_", True), ("fbgemm::split_embedding", True), ("aten::add.out", True),
        ("autograd::engine::evaluate_function: MmBackward0", False), ("torch::autograd::AccumulateGrad", False),
        ("MmBackward0", False), ("nn.Module: Linear_0", False),
    ],
)  # fmt: skip
def test_names_of_operators(name: str, expected: bool) -> None:
    assert is_dispatcher_op(name) is expected


def test_a_call_outside_ops_is_a_t4_of_its_own() -> None:
    events, pieces = cut(op("aten::a", 0, 10), call("cudaDeviceSynchronize", 20, 50))
    assert [SEGMENTS[code] for code in pieces.segment] == ["T5", "T1", "T4"]
    assert str(events.name[pieces.op[2]]) == "cudaDeviceSynchronize"


def test_ties_an_op_of_no_length_at_the_boundary_opens_the_new_step() -> None:
    table = trace(mark(0, 0, 25), op("aten::a", 5, 10), mark(1, 25, 50), op("aten::b", 25, 25), op("aten::c", 30, 40))
    nodes = build_graph(run_of(table)).nodes
    host = nodes[(nodes["node_type"] == "host")]
    ops = host[host["segment"] == "T5"]
    steps = dict(zip(ops["op_name"], ops["step"], strict=True))
    assert steps == {"aten::a": 0, "aten::b": 1, "aten::c": 1}
    assert host["step"].is_monotonic_increasing  # in order of execution


def test_threads_are_cut_apart() -> None:
    first, second = (A, op("aten::c", 20, 30)), (op("aten::b", 5, 8, thread=2), op("aten::d", 50, 60, thread=2))
    events = (*first, *second)
    assert timeline(*events) == [("T5", 0, 10), ("T1", 10, 20), ("T5", 20, 30)]
    assert timeline(*events, thread=2) == [("T5", 5, 8), ("T1", 8, 50), ("T5", 50, 60)]


def _nested(depth_first: list[int]) -> TraceTable:
    """Ops with one to three launches each, with gaps of the given lengths."""
    events: list[Event] = []
    now = 0.0
    for i, length in enumerate(depth_first):
        launches = length % 3
        events.append(op(f"aten::op{length}", now, now + 10 + length))
        events += [
            call("cudaLaunchKernel", now + 1 + 3 * n, now + 3 + 3 * n, corr=10 * i + n + 1) for n in range(launches)
        ]
        now += 10 + length + length % 4
    return trace(*events)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_segments_tile_the_thread_without_gap_or_overlap(lengths: list[int]) -> None:
    events = rank_events(_nested(lengths), 0)
    pieces = host_pieces(events, MAIN, np.zeros(0, dtype=np.int64))
    assert pieces.begin_ns[0] == events.start_ns.min()
    assert pieces.end_ns[-1] == events.end_ns.max()
    assert (pieces.begin_ns[1:] == pieces.end_ns[:-1]).all()


ENGINE = "autograd::engine::evaluate_function: MmBackward0"


def backward(begin: float, end: float, *, thread: int = 5, name: str = "aten::mm_backward") -> list[Event]:
    """One node of the backward graph: a scope around an op."""
    return [op(ENGINE, begin, end, thread=thread), op(name, begin + 2, end - 2, thread=thread)]


def chain(graph: ExecutionGraph) -> set[tuple[str, str, str]]:
    """(relation, source, target) between host nodes, each as op@begin (begin before waits were taken out)."""
    nodes = graph.nodes
    begin = (nodes["start_us"] - nodes["blocked_us"]).tolist()
    label = [f"{o}/{s}@{b:g}" for o, s, b in zip(nodes["op_name"], nodes["segment"], begin, strict=True)]
    timed = graph.edges[graph.edges["relation"].isin(["follows", "waits"])]
    ends = timed[["src", "dst"]].to_numpy().tolist()
    return {(str(r), label[a], label[b]) for r, (a, b) in zip(timed["relation"], ends, strict=True)}


def test_a_burst_forks_from_the_gap_that_contains_it_and_joins_it_again() -> None:
    """main  | a 0-10 |···········| b 100-110 |;  autograd thread 20-40, 50-60."""
    graph = graph_of(op("aten::a", 0, 10), op("aten::b", 100, 110), *backward(20, 40), *backward(50, 60))
    assert chain(graph) == {
        ("follows", "aten::a/T1@0", "aten::a/T5@0"),
        ("follows", "aten::a/T5@0", "aten::b/T1@10"),  # until the fork
        ("follows", "aten::b/T1@10", "aten::b/T1@58"),  # the join, after the burst
        ("follows", "aten::b/T1@58", "aten::b/T5@100"),
        ("waits", "aten::b/T1@10", "aten::mm_backward/T5@22"),
        ("follows", "aten::mm_backward/T5@22", "aten::mm_backward/T1@38"),
        ("follows", "aten::mm_backward/T1@38", "aten::mm_backward/T5@52"),
        ("waits", "aten::mm_backward/T5@52", "aten::b/T1@58"),
        ("follows", "aten::b/T5@100", "step_end/T1@110"),
    }
    host = graph.nodes[graph.nodes["thread"] == 0]
    assert host["latency_us"].tolist() == [0.0, 10.0, 12.0, 42.0, 10.0, 0.0]  # 10-22, 58-100: waiting is no latency


def test_idle_time_of_the_worker_between_two_bursts_is_no_node() -> None:
    graph = graph_of(
        op("aten::a", 0, 10), *backward(20, 40), op("aten::b", 50, 60), *backward(70, 90), op("aten::c", 95, 99)
    )  # fmt: skip
    worker = graph.nodes[graph.nodes["thread"] == 1]
    assert worker["segment"].tolist() == ["T5", "T5"]
    waits = [(a, b) for relation, a, b in chain(graph) if relation == "waits"]
    assert sorted(waits) == [
        ("aten::b/T1@10", "aten::mm_backward/T5@22"), ("aten::c/T1@60", "aten::mm_backward/T5@72"),
        ("aten::mm_backward/T5@22", "aten::b/T1@38"), ("aten::mm_backward/T5@72", "aten::c/T1@88"),
    ]  # fmt: skip


def test_two_autograd_threads_of_one_backward_fork_and_join_each() -> None:
    graph = graph_of(op("aten::a", 0, 10), op("aten::b", 100, 110), *backward(20, 40), *backward(30, 80, thread=6))
    waits = sorted((a, b) for relation, a, b in chain(graph) if relation == "waits")
    assert waits == [
        ("aten::b/T1@10", "aten::mm_backward/T5@22"), ("aten::b/T1@10", "aten::mm_backward/T5@32"),
        ("aten::mm_backward/T5@22", "aten::b/T1@78"), ("aten::mm_backward/T5@32", "aten::b/T1@78"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "events",
    [
        (op("aten::b", 30, 40), *backward(20, 50)),  # a gap does not contain it
        (op("aten::b", 100, 110), op("aten::load", 20, 40, thread=8)),  # no autograd
    ],
)
def test_what_is_no_burst(events: Sequence[Event]) -> None:
    assert not [row for row in chain(graph_of(A, *events)) if row[0] == "waits"]


def test_a_backward_that_launches_belongs_to_the_step_of_its_gap() -> None:
    graph = graph_of(
        mark(0, 0, 120), op("aten::a", 0, 10), *backward(20, 60), op("aten::b", 100, 110),
        call("cudaLaunchKernel", 30, 35, corr=1, thread=5), kernel("gemm", 40, 90, corr=1),
    )  # fmt: skip
    work = graph.nodes[graph.nodes["node_type"] == "compute"].iloc[0]
    assert (work["step"], work["phase"]) == (0, "backward")
    assert set(graph.nodes.loc[graph.nodes["thread"] == 1, "segment"]) == {"T2", "T4", "T3"}
