"""Fork and join of autograd threads."""

from __future__ import annotations

from traces import Event, call, kernel, mark, op, run_of, trace

from gnnperf.graph.build import build_graph
from gnnperf.graph.execution_graph import ExecutionGraph

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
    graph = build_graph(
        run_of(trace(op("aten::a", 0, 10), op("aten::b", 100, 110), *backward(20, 40), *backward(50, 60)))
    )
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
    graph = build_graph(
        run_of(
            trace(
                op("aten::a", 0, 10), *backward(20, 40), op("aten::b", 50, 60), *backward(70, 90), op("aten::c", 95, 99)
            )
        )
    )  # fmt: skip
    worker = graph.nodes[graph.nodes["thread"] == 1]
    assert worker["segment"].tolist() == ["T5", "T5"]
    waits = [(a, b) for relation, a, b in chain(graph) if relation == "waits"]
    assert sorted(waits) == [
        ("aten::b/T1@10", "aten::mm_backward/T5@22"), ("aten::c/T1@60", "aten::mm_backward/T5@72"),
        ("aten::mm_backward/T5@22", "aten::b/T1@38"), ("aten::mm_backward/T5@72", "aten::c/T1@88"),
    ]  # fmt: skip


def test_two_autograd_threads_of_one_backward_fork_and_join_each() -> None:
    graph = build_graph(
        run_of(trace(op("aten::a", 0, 10), op("aten::b", 100, 110), *backward(20, 40), *backward(30, 80, thread=6)))
    )
    waits = sorted((a, b) for relation, a, b in chain(graph) if relation == "waits")
    assert waits == [
        ("aten::b/T1@10", "aten::mm_backward/T5@22"), ("aten::b/T1@10", "aten::mm_backward/T5@32"),
        ("aten::mm_backward/T5@22", "aten::b/T1@78"), ("aten::mm_backward/T5@32", "aten::b/T1@78"),
    ]  # fmt: skip


def test_work_that_a_gap_does_not_contain_is_no_burst() -> None:
    graph = build_graph(run_of(trace(op("aten::a", 0, 10), op("aten::b", 30, 40), *backward(20, 50))))
    assert not [row for row in chain(graph) if row[0] == "waits"]


def test_a_thread_without_autograd_is_no_burst() -> None:
    graph = build_graph(
        run_of(trace(op("aten::a", 0, 10), op("aten::b", 100, 110), op("aten::load", 20, 40, thread=8)))
    )
    assert not [row for row in chain(graph) if row[0] == "waits"]


def test_a_backward_that_launches_belongs_to_the_step_of_its_gap() -> None:
    graph = build_graph(
        run_of(
            trace(
                mark(0, 0, 120), op("aten::a", 0, 10), *backward(20, 60), op("aten::b", 100, 110),
                call("cudaLaunchKernel", 30, 35, corr=1, thread=5), kernel("gemm", 40, 90, corr=1),
            )
        )
    )  # fmt: skip
    work = graph.nodes[graph.nodes["node_type"] == "compute"].iloc[0]
    assert (work["step"], work["phase"]) == (0, "backward")
    assert set(graph.nodes.loc[graph.nodes["thread"] == 1, "segment"]) == {"T2", "T4", "T3"}
