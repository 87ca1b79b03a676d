"""What host calls wait for."""

from __future__ import annotations

import pytest
from traces import Event, call, copy, kernel, mark, op, run_of, sync_event, trace

from gnnperf.core.schema import Evidence
from gnnperf.graph import waits
from gnnperf.graph.build import build_graph
from gnnperf.graph.event_columns import rank_events
from gnnperf.graph.execution_graph import ExecutionGraph
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


def graph_of(*events: Event) -> ExecutionGraph:
    return build_graph(run_of(trace(*events)))


def test_a_device_synchronization_waits_for_every_stream() -> None:
    before, _, guessed = host_waits(*TWO_STREAMS, call("cudaDeviceSynchronize", 20, 85))
    assert before == {("A", "cudaDeviceSynchronize"), ("B", "cudaDeviceSynchronize")}
    assert not guessed


def test_only_work_launched_before_the_call_is_awaited() -> None:
    before, *_ = host_waits(
        call("cudaLaunchKernel", 0, 5, corr=1), kernel("A", 6, 40, corr=1), call("cudaDeviceSynchronize", 10, 45),
        call("cudaLaunchKernel", 50, 55, corr=2), kernel("B", 56, 60, corr=2),
    )  # fmt: skip
    assert before == {("A", "cudaDeviceSynchronize")}


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaEventSynchronize", "hipStreamSynchronize"])
def test_a_stream_synchronization_waits_for_the_stream_its_thread_launched_to_last(name: str) -> None:
    before, *_ = host_waits(*TWO_STREAMS, call(name, 20, 85))
    assert before == {("B", name)}


def test_a_wait_that_the_own_stream_refutes_is_for_another_stream() -> None:
    """B ends at 80, the call returns at 65: it cannot have waited for B."""
    before, *_ = host_waits(*TWO_STREAMS, call("cudaStreamSynchronize", 20, 65))
    assert before == {("A", "cudaStreamSynchronize")}


def test_a_cuda_sync_event_names_the_stream() -> None:
    before, *_ = host_waits(
        *TWO_STREAMS, call("cudaStreamSynchronize", 20, 85, corr=3), sync_event(20, 61, corr=3, stream=7)
    )
    assert before == {("A", "cudaStreamSynchronize")}


def test_a_named_stream_of_another_device_is_not_this_one() -> None:
    other = kernel("C", 6, 30, corr=9, stream=7, device=1)
    before, *_ = host_waits(
        *TWO_STREAMS, other, call("cudaLaunchKernel", 3, 4, corr=9), call("cudaStreamSynchronize", 20, 85, corr=3),
        sync_event(20, 61, corr=3, stream=7, device=1),
    )  # fmt: skip
    assert before == {("C", "cudaStreamSynchronize")}


def test_a_refuted_edge_is_not_made() -> None:
    before, _, guessed = host_waits(*TWO_STREAMS, call("cudaDeviceSynchronize", 20, 50))
    assert (before, guessed) == (set(), set())


def test_the_latency_of_a_wait_is_what_is_left_after_its_cause() -> None:
    nodes = graph_of(*TWO_STREAMS, call("cudaDeviceSynchronize", 20, 85)).nodes
    sync = nodes[nodes["event_name"] == "cudaDeviceSynchronize"].iloc[0]
    assert (sync["blocked_us"], sync["latency_us"], sync["start_us"]) == (60.0, 5.0, 80.0)


def test_a_wait_for_work_that_ended_long_ago_keeps_its_whole_duration() -> None:
    nodes = graph_of(*TWO_STREAMS, call("cudaDeviceSynchronize", 90, 95)).nodes
    sync = nodes[nodes["event_name"] == "cudaDeviceSynchronize"].iloc[0]
    assert (sync["blocked_us"], sync["latency_us"], sync["start_us"]) == (0.0, 5.0, 90.0)


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
    """On AMD no name says "Pageable": the call does."""
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


def test_every_stream_has_a_launch_queue_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depth 1: the third launch waits for A, which is before it on its stream, not for B, which was launched last."""
    events = [call("cudaLaunchKernel", 10 * i, 10 * i + 5, corr=i + 1) for i in range(2)]
    events += [call("cudaLaunchKernelExC", 20, 75, corr=3)]
    events += [kernel("A", 10, 70, corr=1), kernel("B", 15, 25, corr=2, stream=8), kernel("C", 72, 80, corr=3)]
    monkeypatch.setattr(waits, "LAUNCH_QUEUE_DEPTH", 1)
    assert host_waits(*events)[0] == {("A", "cudaLaunchKernelExC")}


def test_work_launched_before_the_window_fills_the_queue_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LAUNCH_QUEUE_DEPTH", 1)
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
