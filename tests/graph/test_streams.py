"""Waits between streams."""

from __future__ import annotations

import numpy as np
from traces import Event, call, kernel, run_of, trace

from gnnperf.graph.build import build_graph
from gnnperf.graph.device import device_works
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.rank_events import rank_events
from gnnperf.graph.streams import event_waits


def wait_step(at: float, *, a_ends: float, b_starts: float, corr: int) -> list[Event]:
    """A on stream 7, record, stream 8 waits, B on stream 8."""
    return [
        call("cudaLaunchKernel", at, at + 2, corr=corr),
        call("cudaEventRecord", at + 3, at + 4),
        call("cudaStreamWaitEvent", at + 5, at + 6),
        call("cudaLaunchKernel", at + 7, at + 9, corr=corr + 1),
        kernel("A", at + 4, at + a_ends, corr=corr, stream=7),
        kernel("B", at + b_starts, at + b_starts + 10, corr=corr + 1, stream=8),
    ]


def waits_of(*events: Event) -> set[tuple[str, str, float]]:
    """(source, target, start of the target) of every wait between streams."""
    ranks = rank_events(trace(*events), 0)
    works = device_works(ranks)
    name = ranks.name[works.event]
    return {(name[a], name[b], works.begin_ns[b] / 1000) for a, b in event_waits(ranks, works).T.tolist()}


def test_the_next_launch_waits_for_the_last_work_before_the_record() -> None:
    assert waits_of(*wait_step(0, a_ends=40, b_starts=42, corr=1)) == {("A", "B", 42.0)}


def test_work_launched_between_record_and_wait_is_not_awaited() -> None:
    events = [
        call("cudaLaunchKernel", 0, 1, corr=1), call("cudaEventRecord", 2, 3), call("cudaLaunchKernel", 4, 5, corr=2),
        call("cudaStreamWaitEvent", 6, 7), call("cudaLaunchKernel", 8, 9, corr=3),
        kernel("A", 5, 20, corr=1), kernel("A2", 20, 30, corr=2), kernel("B", 35, 45, corr=3, stream=8),
    ]  # fmt: skip
    assert waits_of(*events) == {("A", "B", 35.0)}


def test_without_a_record_just_before_the_wait_itself_is_the_moment() -> None:
    events = [
        call("cudaLaunchKernel", 4, 5, corr=2), call("cudaStreamWaitEvent", 6, 7),
        call("cudaLaunchKernel", 8, 9, corr=3),
        kernel("A", 20, 30, corr=2), kernel("B", 35, 45, corr=3, stream=8),
    ]  # fmt: skip
    assert waits_of(*events) == {("A", "B", 35.0)}


def test_a_wait_that_the_recording_refutes_is_not_made() -> None:
    assert waits_of(*wait_step(0, a_ends=50, b_starts=42, corr=1)) == set()


def test_a_pair_refuted_in_one_step_is_no_dependency_in_another() -> None:
    holds, refutes = wait_step(0, a_ends=40, b_starts=42, corr=1), wait_step(100, a_ends=50, b_starts=42, corr=11)
    assert waits_of(*holds, *wait_step(100, a_ends=40, b_starts=42, corr=11)) == {("A", "B", 42.0), ("A", "B", 142.0)}
    assert waits_of(*holds, *refutes) == set()


def test_a_stream_does_not_wait_for_itself() -> None:
    events = [
        call("cudaLaunchKernel", 0, 1, corr=1), call("cudaStreamWaitEvent", 2, 3),
        call("cudaLaunchKernel", 4, 5, corr=2),
        kernel("A", 5, 20, corr=1), kernel("B", 20, 30, corr=2),
    ]  # fmt: skip
    assert waits_of(*events) == set()


def test_a_gap_that_nothing_explains_is_guessed_for_replay_only() -> None:
    """B was launched at 2 and starts at 62 where A, on another stream, ended at 60; no wait was recorded."""
    graph = build_graph(
        run_of(
            trace(
                call("cudaLaunchKernel", 0, 1, corr=1), call("cudaLaunchKernel", 2, 3, corr=2),
                kernel("A", 5, 60, corr=1), kernel("B", 62, 70, corr=2, stream=8),
            )
        )
    )  # fmt: skip
    edges = graph.edges[graph.edges["evidence"] == "timing"]
    names = graph.nodes["event_name"].astype(object).to_numpy()
    found = zip(names[edges["src"]], names[edges["dst"]], edges["lag_us"], strict=True)
    assert list(found) == [("A", "B", 2.0)]
    assert not (graph.for_predictors().edges["evidence"] == "timing").any()


def test_the_lag_of_an_edge_is_measured_where_it_was_binding() -> None:
    """B: launched at 7, A ended at 40, started at 42: the event bound it (lag 2), the launch did not."""
    graph = build_graph(run_of(trace(*wait_step(0, a_ends=40, b_starts=42, corr=1))))
    assert lags_into(graph, "B")["waits"] == 2.0
    assert np.isnan(lags_into(graph, "B")["launches"])
    assert lags_into(graph, "A")["launches"] == 4.0


def lags_into(graph: ExecutionGraph, event_name: str) -> dict[str, float]:
    """Relation -> lag of the edges into one work."""
    edges = graph.edges[(graph.nodes["event_name"] == event_name).to_numpy()[graph.edges["dst"]]]
    return dict(zip(edges["relation"], edges["lag_us"], strict=True))
