"""Step marks -> windows -> labels."""

import numpy as np
import pytest
from traces import Event, call, counts, graph_of, kernel, mark, op, run_of, trace

from gnnperf.graph import build_graph, rank_events
from gnnperf.graph.steps import StepWindows, step_windows
from gnnperf.trace.table import TraceTable


def windows(*tables: TraceTable) -> StepWindows:
    return step_windows([rank_events(table, 0) for table in tables])


def step(number: int, begin: float, end: float, device_end: float) -> list[Event]:
    """One step: an op that launches a kernel 10 us after the step's begin."""
    corr = number + 1
    return [
        mark(number, begin, end),
        op("aten::mm", begin + 10, begin + 30),
        call("cudaLaunchKernel", begin + 15, begin + 20, corr=corr),
        kernel("gemm", begin + 25, device_end, corr=corr),
    ]


def test_a_step_lasts_until_the_next_mark_and_the_last_until_its_own_end() -> None:
    marked = windows(trace(mark(0, 0, 50, thread=9), op("aten::a", 1, 2), op("aten::b", 3, 4), op("aten::c", 5, 6)))
    assert marked.main_thread.tolist() == [9]  # the one with the marks
    result = windows(trace(mark(4, 0, 90), mark(5, 100, 180), mark(6, 200, 290), op("aten::a", 5, 10)))
    assert result.names == ("ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6")
    assert result.begin_ns.tolist() == [[0, 100_000, 200_000]]
    assert result.cpu_end_ns.tolist() == [[100_000, 200_000, 290_000]]
    moments = np.array([-1, 0, 95_000, 100_000, 289_999, 290_000])
    assert result.step_of(0, moments).tolist() == [-1, 0, 0, 1, 2, -1]


def test_only_steps_that_every_rank_has_count() -> None:
    result = windows(
        trace(mark(1, 0, 100), mark(2, 100, 200), mark(3, 200, 300)),
        trace(mark(2, 110, 210), mark(3, 210, 310), mark(4, 310, 400), rank=1),
    )
    assert result.names == ("ProfilerStep#2", "ProfilerStep#3")
    assert result.begin_ns.tolist() == [[100_000, 200_000], [110_000, 210_000]]
    # Rank 1 has a mark after its last whole step; the step still ends at its own end.
    assert result.cpu_end_ns.tolist() == [[200_000, 300_000], [210_000, 310_000]]


def test_a_missing_mark_ends_the_step_before_it_and_no_period_spans_the_hole() -> None:
    events = [*step(1, 0, 100, 90), *step(2, 100, 200, 190), *step(4, 300, 400, 390), *step(5, 400, 500, 490)]
    result = windows(trace(*events))
    assert result.step_of(0, np.array([250_000])).tolist() == [-1]
    graph = graph_of(*events)
    assert [s.period_us for s in graph.steps] == [None, 100.0, None, 100.0]


def test_ranks_without_a_common_step_are_one_window_and_it_states_why() -> None:
    graph = build_graph(
        run_of(trace(*step(1, 0, 100, 90), world_size=2), trace(*step(2, 0, 100, 90), rank=1, world_size=2))
    )
    assert [s.name for s in graph.steps] == ["window"]
    assert any("no ProfilerStep mark in common (ranks with marks: 0, 1)" in w for w in graph.warnings)


def test_without_marks_the_window_is_first_start_to_last_end() -> None:
    table = trace(op("aten::a", 10, 30), op("aten::b", 40, 60), op("aten::c", 45, 50, thread=2), kernel("k", 35, 90))
    result = windows(table)
    assert (result.names, result.has_marks) == (("window",), False)
    assert (result.begin_ns.tolist(), result.cpu_end_ns.tolist()) == ([[10_000]], [[60_000]])
    graph = build_graph(run_of(table))
    assert graph.steps[0].makespan_us == pytest.approx(80.0)  # 10 to 90: the kernel ends last
    assert graph.steps[0].period_us is None
    assert graph.warnings == ()  # `trace.checks` has warned of it


def test_period_is_from_completion_to_completion_and_makespan_from_the_earliest_start() -> None:
    """rank 0: device ends 130, 250; rank 1 (starts 7 later): device ends 150, 240; host ends 100/107, 200/207."""
    ranks = (
        trace(*step(0, 0, 100, 130), *step(1, 100, 200, 250), world_size=2),
        trace(*step(0, 7, 107, 150), *step(1, 107, 207, 240), rank=1, world_size=2),
    )
    first, second = build_graph(run_of(*ranks)).steps
    assert (first.period_us, first.makespan_us) == (None, 150.0)
    assert first.rank_start_us == (0.0, 7.0)
    assert first.rank_completion_us == (130.0, 150.0)
    assert (second.period_us, second.makespan_us) == (100.0, 150.0)  # C: 150 -> 250


def test_a_step_whose_device_is_done_early_ends_with_its_host() -> None:
    graph = graph_of(*step(0, 0, 100, 60), *step(1, 100, 200, 160))
    assert [s.rank_completion_us for s in graph.steps] == [(100.0,), (200.0,)]


def test_device_work_belongs_to_the_step_that_launched_it() -> None:
    graph = graph_of(*step(0, 0, 100, 130), *step(1, 100, 200, 250), kernel("late", 260, 270))
    work = graph.nodes[graph.nodes["node_type"] == "compute"]
    assert dict(zip(work["start_us"], work["step"], strict=True)) == {25.0: 0, 125.0: 1, 260.0: -1}
    assert counts(graph)["device_work_without_launch"] == 1


def test_base_times_of_ranks_are_aligned() -> None:
    graph = build_graph(
        run_of(
            trace(*step(0, 0, 100, 130), base_us=1000, world_size=2),
            trace(*step(0, 0, 100, 130), base_us=1040, rank=1, world_size=2),
        )
    )
    assert graph.steps[0].rank_start_us == (0.0, 40.0)
    assert graph.steps[0].makespan_us == 170.0
