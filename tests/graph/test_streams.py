"""Waits between streams."""

from __future__ import annotations

import numpy as np
from traces import Event, call, kernel, run_of, trace

from gnnperf.core.schema import EventKind
from gnnperf.graph.build import build_graph
from gnnperf.graph.event_columns import rank_events
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.waits import event_waits
from gnnperf.graph.works import device_works


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
    return {(name[a], name[b], works.begin_ns[b] / 1000) for a, b in event_waits(ranks, works).all.T.tolist()}


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


def named_wait(corr: int, *, awaited: int, waiting: int, record: int = -1, at: float = 0) -> Event:
    """A cuda_sync event: stream `waiting` waits for stream `awaited` as of the record with that correlation."""
    columns: dict[str, object] = {"correlation": corr, "stream": awaited, "waiting_stream": waiting,
                                  "wait_event": record, "device": 0}  # fmt: skip
    return Event(EventKind.SYNC, "Stream Wait Event", at, at, columns)


THREE_STREAMS = (
    call("cudaLaunchKernel", 0, 1, corr=1), call("cudaEventRecord", 2, 3, corr=20),
    call("cudaLaunchKernel", 4, 5, corr=2), call("cudaLaunchKernel", 6, 7, corr=3),
    call("cudaStreamWaitEvent", 8, 9, corr=30),
    call("cudaLaunchKernel", 10, 11, corr=4), call("cudaLaunchKernel", 12, 13, corr=5),
    kernel("A", 2, 20, corr=1, stream=7), kernel("A2", 20, 30, corr=2, stream=7), kernel("B", 7, 22, corr=3, stream=8),
    kernel("C", 12, 25, corr=4, stream=9), kernel("B2", 23, 40, corr=5, stream=8),
)  # fmt: skip


def test_a_cuda_sync_event_names_both_streams_and_the_record() -> None:
    """Stream 8 waits for A as of the record at 2: not for A2, launched later, and C, launched next, does not wait."""
    sync = named_wait(30, awaited=7, waiting=8, record=20)
    assert waits_of(*THREE_STREAMS, sync) == {("A", "B2", 23.0)}
    graph = build_graph(run_of(trace(*THREE_STREAMS, sync)))
    names = graph.nodes["event_name"].astype(object).to_numpy()
    event = graph.edges[(graph.edges["lag_class"] == "event").to_numpy()]
    assert [(names[s], names[d], e) for s, d, e in zip(event["src"], event["dst"], event["evidence"], strict=True)] == [
        ("A", "B2", "id")
    ]


def test_where_syncs_are_recorded_a_wait_without_one_is_no_wait() -> None:
    events = wait_step(0, a_ends=40, b_starts=42, corr=1)
    other = named_wait(31, awaited=7, waiting=8, record=20)  # of a call outside the file
    assert waits_of(*events) == {("A", "B", 42.0)}
    assert waits_of(*events, other) == set()


def test_an_event_recorded_before_the_window_awaits_what_was_launched_before_it() -> None:
    early = kernel("Z", 0, 1, corr=0, stream=7)  # no call: launched before the window
    sync = named_wait(30, awaited=7, waiting=8, record=5)  # no such record in the file
    assert waits_of(*THREE_STREAMS, early, sync) == {("Z", "B2", 23.0)}


def test_a_record_after_the_wait_is_named_wrongly() -> None:
    """The event was recorded again; what directly precedes the wait counts, here the wait itself."""
    again = call("cudaEventRecord", 50, 51, corr=40)
    sync = named_wait(30, awaited=9, waiting=8, record=40)
    assert waits_of(*THREE_STREAMS, again, sync) == set()  # nothing was launched on stream 9 before
    sync = named_wait(30, awaited=8, waiting=9, record=40)
    refuted = waits_of(*THREE_STREAMS, again, sync)  # C starts at 12, B ends at 22
    assert refuted == set()


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
    result = zip(names[edges["src"]], names[edges["dst"]], edges["lag_us"], strict=True)
    assert list(result) == [("A", "B", 2.0)]
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
