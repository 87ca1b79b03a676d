"""What host calls wait for."""

from collections.abc import Sequence

import numpy as np
import pytest
from traces import Event, annotation, call, copy, graph_of, kernel, mark, op, sync_event, trace

from gnnperf.core import EventKind, Evidence
from gnnperf.graph import ExecutionGraph, rank_events, waits
from gnnperf.graph.waits import event_waits
from gnnperf.graph.works import device_works
from gnnperf.schedule.longest_path import timed_edges

TWO_STREAMS = (
    call("cudaLaunchKernel", 0, 5, corr=1),
    call("cudaLaunchKernel", 10, 15, corr=2),
    kernel("A", 6, 60, corr=1, stream=7),
    kernel("B", 16, 80, corr=2, stream=8),
)


def host_waits(*events: Event) -> tuple[set[tuple[str, str]], set[tuple[str, str]], set[tuple[str, str]]]:
    """(before the call, the call's own copy, guessed) as (work, call) names."""
    ranks = rank_events(trace(*events), 0)
    works = device_works(ranks)
    result = waits.host_waits(ranks, works)
    name = ranks.name
    return tuple(  # type: ignore[return-value]
        {(name[works.event[w]], name[c]) for w, c in pairs.T.tolist()}
        for pairs in (result.before_call, result.own_copy, result.guessed)
    )


DEVICE, STREAM = "cudaDeviceSynchronize", "cudaStreamSynchronize"


@pytest.mark.parametrize(
    ("events", "before"),
    [
        ((*TWO_STREAMS, call(DEVICE, 20, 85)), {("A", DEVICE), ("B", DEVICE)}),  # a device: every stream
        ((call("cudaLaunchKernel", 0, 5, corr=1), kernel("A", 6, 40, corr=1), call(DEVICE, 10, 45),
          call("cudaLaunchKernel", 50, 55, corr=2), kernel("B", 56, 60, corr=2)), {("A", DEVICE)}),  # launched before
        # A stream: the one its thread launched to last, unless that is refuted: B ends at 80, the call at 65.
        ((*TWO_STREAMS, call(STREAM, 20, 85)), {("B", STREAM)}),
        ((*TWO_STREAMS, call("cudaEventSynchronize", 20, 85)), {("B", "cudaEventSynchronize")}),
        ((*TWO_STREAMS, call("hipStreamSynchronize", 20, 85)), {("B", "hipStreamSynchronize")}),
        ((*TWO_STREAMS, call(STREAM, 20, 65)), {("A", STREAM)}),
        # A cuda_sync event names the stream, of its own device.
        ((*TWO_STREAMS, call(STREAM, 20, 85, corr=3), sync_event(20, 61, corr=3, stream=7)), {("A", STREAM)}),
        ((*TWO_STREAMS, kernel("C", 6, 30, corr=9, stream=7, device=1), call("cudaLaunchKernel", 3, 4, corr=9),
          call(STREAM, 20, 85, corr=3), sync_event(20, 61, corr=3, stream=7, device=1)), {("C", STREAM)}),
        ((*TWO_STREAMS, call(DEVICE, 20, 50)), set()),  # both end later: refuted
    ],
)  # fmt: skip
def test_what_a_synchronization_waits_for(events: Sequence[Event], before: set[tuple[str, str]]) -> None:
    assert host_waits(*events) == (before, set(), set())


@pytest.mark.parametrize(("returns_us", "awaited"), [(4980, {"B"}), (4970, set())])
def test_a_long_wait_may_return_before_its_work_ends_by_as_much_as_clocks_drift(
    returns_us: int, awaited: set[str]
) -> None:
    """The device clock is 20 us ahead (drift: up to 25 us), or the work ends 30 us after the call."""
    launch, work = call("cudaLaunchKernel", 10, 15, corr=2), kernel("B", 16, 5000, corr=2)
    before, *_ = host_waits(launch, work, call(STREAM, 20, returns_us))
    assert before == {(name, STREAM) for name in awaited}


@pytest.mark.parametrize(("begin", "end", "expected"), [
    (20, 85, (60.0, 5.0, 80.0)),  # what is left after its cause
    (90, 95, (0.0, 5.0, 90.0)),  # the work ended long ago: its whole duration
])  # fmt: skip
def test_the_latency_of_a_wait(begin: float, end: float, expected: tuple[float, float, float]) -> None:
    nodes = graph_of(*TWO_STREAMS, call("cudaDeviceSynchronize", begin, end)).nodes
    sync = nodes[nodes["event_name"] == "cudaDeviceSynchronize"].iloc[0]
    assert (sync["blocked_us"], sync["latency_us"], sync["start_us"]) == expected


PAGEABLE = (
    op("aten::copy_", 0, 90),
    call("cudaLaunchKernel", 2, 5, corr=1),
    call("cudaMemcpyAsync", 10, 80, corr=2),
    kernel("A", 6, 50, corr=1),
    copy("Memcpy HtoD (Pageable -> Device)", 55, 75, corr=2),
)


def test_a_pageable_copy_drains_its_stream_and_is_awaited_by_its_own_call() -> None:
    before, own, _ = host_waits(*PAGEABLE)
    assert before == {("A", "cudaMemcpyAsync")}
    assert own == {("Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync")}


def test_a_pageable_copy_splits_its_call_into_drain_and_copy() -> None:
    """Drain: 10 to 55, of that 40 waiting for A (ends at 50). Copy: 55 to 80, of that 20 waiting for the copy."""
    graph = graph_of(*PAGEABLE)
    nodes, edges = graph.nodes, graph.edges
    drain, staged = nodes.index[nodes["event_name"] == "cudaMemcpyAsync"]
    assert nodes.loc[[drain, staged], "segment"].tolist() == ["T4", "T4"]
    assert nodes.loc[[drain, staged], "blocked_us"].tolist() == [40.0, 20.0]
    assert nodes.loc[[drain, staged], "latency_us"].tolist() == [5.0, 5.0]
    memcpy = nodes.index[nodes["node_type"] == "memory"][0]
    kinds = {(e.src, e.dst): (e.relation, e.lag_class) for e in edges.itertuples()}
    assert kinds[drain, memcpy] == ("waits", "copy")  # the copy starts after the drain has ended, not with the call
    assert (memcpy, staged) in kinds
    assert not [e for e in edges.itertuples() if e.dst == memcpy and e.relation == "launches"]


@pytest.mark.parametrize("name", ["hipMemcpyWithStream", "cudaMemcpy", "cuMemcpyDtoH_v2"])
def test_a_synchronous_copy_is_awaited_by_its_own_call_whatever_its_memory(name: str) -> None:
    """On AMD no name states "Pageable": the call does."""
    before, own, guessed = host_waits(
        call("hipLaunchKernel", 2, 5, corr=1), kernel("A", 6, 50, corr=1), call(name, 10, 80, corr=2),
        copy("Memcpy DtoH (Device -> Host)", 55, 75, corr=2),
    )  # fmt: skip
    assert (before, own, guessed) == ({("A", name)}, {("Memcpy DtoH (Device -> Host)", name)}, set())


def test_a_driver_call_inside_a_copy_belongs_to_it() -> None:
    """The copy carries the driver call's number; the runtime call around it is the one that is split."""
    events = [*PAGEABLE, call("cuMemcpyHtoDAsync_v2", 12, 78, corr=3)]
    events[4] = copy("Memcpy HtoD (Pageable -> Device)", 55, 75, corr=3)
    graph = graph_of(*events)
    split = graph.nodes[graph.nodes["event_name"] == "cudaMemcpyAsync"]
    assert split["blocked_us"].tolist() == [40.0, 20.0]
    timed_edges(graph)  # no cycle


def test_a_pinned_copy_is_launched_like_a_kernel() -> None:
    events = [
        e if "Pageable" not in e.name else copy("Memcpy HtoD (Pinned -> Device)", 55, 75, corr=2) for e in PAGEABLE
    ]
    before, own, guessed = host_waits(*events)
    assert (before, own) == (set(), set())
    assert guessed == set()  # its end is 30 us before the call's end; A ended 30 us before as well


def test_a_full_launch_queue_blocks_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depth 2: the third launch waits for the first kernel, the fourth for the second; the fourth is refuted."""
    events = [call("cudaLaunchKernel", 10 * i, 10 * i + 5, corr=i + 1) for i in range(2)]
    events += [call("cudaLaunchKernelC", 20, 45, corr=3), call("cudaLaunchKernelExC", 50, 55, corr=4)]
    events += [kernel(n, 10 + 30 * i, 40 + 30 * i, corr=i + 1) for i, n in enumerate("ABCD")]
    assert host_waits(*events)[0] == set()
    monkeypatch.setattr(waits, "LAUNCH_QUEUE_DEPTH", 2)
    assert host_waits(*events)[0] == {("A", "cudaLaunchKernelC")}


def test_every_stream_has_a_launch_queue_of_its_own_that_earlier_work_fills_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Depth 1: the third launch waits for A, which is before it on its stream, not for B, which was launched last."""
    events = [call("cudaLaunchKernel", 10 * i, 10 * i + 5, corr=i + 1) for i in range(2)]
    events += [call("cudaLaunchKernelExC", 20, 75, corr=3)]
    events += [kernel("A", 10, 70, corr=1), kernel("B", 15, 25, corr=2, stream=8), kernel("C", 72, 80, corr=3)]
    monkeypatch.setattr(waits, "LAUNCH_QUEUE_DEPTH", 1)
    assert host_waits(*events)[0] == {("A", "cudaLaunchKernelExC")}
    before, *_ = host_waits(
        kernel("early", 0, 30, corr=99), call("cudaLaunchKernel", 10, 32, corr=1), kernel("A", 33, 40, corr=1)
    )
    assert before == {("early", "cudaLaunchKernel")}


LONG_LAUNCH = (
    call("cudaLaunchKernel", 0, 5, corr=1), kernel("A", 6, 95, corr=1), call("cudaLaunchKernelExC", 40, 100, corr=2),
    kernel("B", 101, 120, corr=2),
)  # fmt: skip


def test_a_long_call_that_nothing_explains_is_guessed_from_time_for_replay_only() -> None:
    before, _, guessed = host_waits(*LONG_LAUNCH)
    assert (before, guessed) == (set(), {("A", "cudaLaunchKernelExC")})
    graph = graph_of(*LONG_LAUNCH)
    assert (graph.edges["evidence"] == Evidence.TIMING).sum() == 1
    assert (graph.for_predictors().edges["evidence"] == Evidence.TIMING).sum() == 0
    assert len(graph.for_predictors().edges) == len(graph.edges) - 1


def test_edges_say_why_they_are_believed() -> None:
    edges = graph_of(mark(0, 0, 100), *TWO_STREAMS, call("cudaDeviceSynchronize", 20, 85)).edges
    result = set(zip(edges["relation"], edges["evidence"], strict=True))
    assert {f for f in result if f[0] in ("follows", "launches", "waits")} == {
        ("follows", "id"), ("launches", "id"), ("waits", "order"),
    }  # fmt: skip


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
    return {(name[a], name[b], works.begin_ns[b] / 1000) for a, b in event_waits(ranks, works)[0].T.tolist()}


LAUNCH_1, LAUNCH_2 = call("cudaLaunchKernel", 0, 1, corr=1), call("cudaLaunchKernel", 4, 5, corr=2)
WAIT, LAUNCH_3 = call("cudaStreamWaitEvent", 6, 7), call("cudaLaunchKernel", 8, 9, corr=3)
B = kernel("B", 35, 45, corr=3, stream=8)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (wait_step(0, a_ends=40, b_starts=42, corr=1), {("A", "B", 42.0)}),  # the last work before the record
        ((LAUNCH_1, call("cudaEventRecord", 2, 3), LAUNCH_2, WAIT, LAUNCH_3, kernel("A", 5, 20, corr=1),
          kernel("A2", 20, 30, corr=2), B), {("A", "B", 35.0)}),  # not A2, launched between record and wait
        ((LAUNCH_2, WAIT, LAUNCH_3, kernel("A", 20, 30, corr=2), B), {("A", "B", 35.0)}),  # no record: as of the wait
        (wait_step(0, a_ends=50, b_starts=42, corr=1), set()),  # refuted
        ((LAUNCH_1, call("cudaStreamWaitEvent", 2, 3), LAUNCH_2, kernel("A", 5, 20, corr=1),
          kernel("B", 20, 30, corr=2)), set()),  # a stream does not wait for itself
    ],
)  # fmt: skip
def test_what_the_next_launch_after_a_wait_awaits(
    events: Sequence[Event], expected: set[tuple[str, str, float]]
) -> None:
    assert waits_of(*events) == expected


def test_a_pair_refuted_in_one_step_is_no_dependency_in_another() -> None:
    holds, refutes = wait_step(0, a_ends=40, b_starts=42, corr=1), wait_step(100, a_ends=50, b_starts=42, corr=11)
    assert waits_of(*holds, *wait_step(100, a_ends=40, b_starts=42, corr=11)) == {("A", "B", 42.0), ("A", "B", 142.0)}
    assert waits_of(*holds, *refutes) == set()


def named_wait(corr: int, *, awaited: int, waiting: int, record: int) -> Event:
    """A cuda_sync event: stream `waiting` waits for stream `awaited` as of the record with that correlation."""
    columns: dict[str, object] = {"correlation": corr, "stream": awaited, "waiting_stream": waiting,
                                  "wait_event": record, "device": 0}  # fmt: skip
    return Event(EventKind.SYNC, "Stream Wait Event", 0, 0, columns)


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
    graph = graph_of(*THREE_STREAMS, sync)
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
    graph = graph_of(
        call("cudaLaunchKernel", 0, 1, corr=1), call("cudaLaunchKernel", 2, 3, corr=2),
        kernel("A", 5, 60, corr=1), kernel("B", 62, 70, corr=2, stream=8),
    )  # fmt: skip
    edges = graph.edges[graph.edges["evidence"] == "timing"]
    names = graph.nodes["event_name"].astype(object).to_numpy()
    result = zip(names[edges["src"]], names[edges["dst"]], edges["lag_us"], strict=True)
    assert list(result) == [("A", "B", 2.0)]
    assert not (graph.for_predictors().edges["evidence"] == "timing").any()


def test_the_lag_of_an_edge_is_measured_where_it_was_binding() -> None:
    """B: launched at 7, A ended at 40, started at 42: the event bound it (lag 2), the launch did not."""
    graph = graph_of(*wait_step(0, a_ends=40, b_starts=42, corr=1))
    assert lags_into(graph, "B")["waits"] == 2.0
    assert np.isnan(lags_into(graph, "B")["launches"])
    assert lags_into(graph, "A")["launches"] == 4.0


def lags_into(graph: ExecutionGraph, event_name: str) -> dict[str, float]:
    """Relation -> lag of the edges into one work."""
    edges = graph.edges[(graph.nodes["event_name"] == event_name).to_numpy()[graph.edges["dst"]]]
    return dict(zip(edges["relation"], edges["lag_us"], strict=True))


def timed_iterations(optimizer_us: float, *, late_us: float = 0.0) -> list[Event]:
    """Three steps whose forward asks for two times of the step before: its backward ends 100 us into the next step.

    The optimizer's kernel takes `optimizer_us`; the second request comes 102 us into the step. In the last step the
    backward ends `late_us` later than that.
    """
    events: list[Event] = []
    for n in range(3):
        at, end = 1000.0 * n, 1100.0 + 1000 * n + (late_us if n == 1 else 0.0)
        events += [
            mark(n, at, at + 1000), annotation("DistributedDataParallel.forward", at + 1, at + 300),
            call("cudaEventElapsedTime", at + 5, at + 6), call("cudaEventElapsedTime", at + 102, at + 103),
            op("aten::mm", at + 110, at + 150), call("cudaLaunchKernel", at + 120, at + 125, corr=10 * n + 1),
            kernel("forward", at + 300, at + 700, corr=10 * n + 1),
            annotation("## backward ##", at + 310, at + 400), op("aten::mul", at + 320, at + 350),
            call("cudaLaunchKernel", at + 330, at + 335, corr=10 * n + 2),
            kernel("backward", at + 700, end, corr=10 * n + 2),
            annotation("Optimizer.step#SGD.step", at + 410, at + 500), op("aten::add_", at + 420, at + 450),
            call("cudaLaunchKernel", at + 430, at + 435, corr=10 * n + 3),
            kernel("optimizer", end, end + optimizer_us, corr=10 * n + 3),
        ]  # fmt: skip
    return events


def awaited_before_timing(graph: ExecutionGraph) -> list[tuple[str, int, float, float]]:
    """(awaited kernel, step of the gap, blocked and own time of the gap) per gap before a request for a time."""
    nodes, edges = graph.nodes, graph.edges
    gaps = nodes.index[(nodes["segment"] == "T1") & (nodes["op_name"] == "cudaEventElapsedTime")]
    waits = edges[(edges["relation"] == "waits") & edges["dst"].isin(gaps)]
    assert set(waits["evidence"]) <= {"order"}
    return [(str(nodes["event_name"][src]), int(nodes["step"][dst]), float(nodes["blocked_us"][dst]),
             float(nodes["latency_us"][dst])) for src, dst in zip(waits["src"], waits["dst"], strict=True)]  # fmt: skip


def test_a_timer_waits_for_the_last_backward_or_for_an_optimizer_that_had_ended() -> None:
    """The gap before the second request is 6 to 102 us into a step: 94 us until backward ends, 2 us of its own."""
    result = awaited_before_timing(graph_of(*timed_iterations(50.0)))
    assert [row for row in result if row[0] == "backward"] == [("backward", 1, 94.0, 2.0), ("backward", 2, 94.0, 2.0)]
    assert not [row for row in result if row[0] == "optimizer"]
    result = awaited_before_timing(graph_of(*timed_iterations(1.0)))
    assert [row for row in result if row[2] > 0] == [("optimizer", 1, 95.0, 1.0), ("optimizer", 2, 95.0, 1.0)]


def test_what_the_recordings_do_not_bear_out_is_not_awaited() -> None:
    """In one of two steps the backward ends after the request: the begin of the backward is left."""
    result = awaited_before_timing(graph_of(*timed_iterations(50.0, late_us=20.0)))
    assert {row[0] for row in result if row[1] > 0} == {"forward"}
