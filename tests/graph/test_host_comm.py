"""Collectives on host threads (gloo)."""

from dataclasses import replace

import pandas as pd
from toys import edges_of
from traces import Event, annotation, counts, mark, op, run_of, trace

from gnnperf.graph import ExecutionGraph, build_graph

HOOK = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def gloo(kind: str, begin: float, end: float, *, thread: int = 9, elements: int = 64) -> Event:
    """The range of a worker thread."""
    return annotation(
        f"gloo:{kind}", begin, end, thread=thread, collective=kind, group="[0,1]", group_size=2,
        in_elements=float(elements), out_elements=float(elements), comm_dtype="float32", input_dims=f"[[{elements}]]",
    )  # fmt: skip


def graph_of(*events: Event) -> ExecutionGraph:
    """Both ranks do the same."""
    return build_graph(run_of(*(trace(*events, rank=r, world_size=2, backend="gloo") for r in (0, 1))))


def rows(graph: ExecutionGraph, rank: int = 0) -> pd.DataFrame:
    return graph.nodes[graph.nodes["rank"] == rank]


def timed(graph: ExecutionGraph, relation: str) -> set[tuple[str, str]]:
    """(source, target) of rank 0 as op/segment."""
    name = [f"{o}/{s}" for o, s in zip(graph.nodes["op_name"], graph.nodes["segment"], strict=True)]
    return {(name[a], name[b]) for a, b in edges_of(graph, relation) if graph.nodes["rank"].iloc[b] == 0}


SYNCHRONOUS = (
    mark(0, 0, 200), op("aten::mm", 10, 40, input_dims="[[4,4],[4,4]]", input_types='["float","float"]'),
    op("c10d::alltoall_base_", 50, 60, collective="all_to_all"), gloo("all_to_all", 55, 120), op("aten::add", 125, 130),
)  # fmt: skip


def test_a_synchronous_call_waits_in_the_gap_right_after_it() -> None:
    """The call is 50 to 60, its collective begins at 55: from there to 120 it waits, 5 us of the gap are its own."""
    graph = graph_of(*SYNCHRONOUS)
    assert timed(graph, "launches") == {("c10d::alltoall_base_/T5", "c10d::alltoall_base_/arrive")}
    assert timed(graph, "waits") == {("c10d::alltoall_base_/exit", "aten::add/T1")}
    gap = rows(graph)[(rows(graph)["segment"] == "T1") & (rows(graph)["op_name"] == "aten::add")].iloc[0]
    assert (gap["blocked_us"], gap["latency_us"], gap["start_us"]) == (65.0, 5.0, 120.0)
    call = rows(graph)[(rows(graph)["segment"] == "T5") & (rows(graph)["op_name"] == "c10d::alltoall_base_")].iloc[0]
    assert (call["latency_us"], call["blocked_us"]) == (5.0, 0.0)


def test_a_call_that_returns_after_its_collective_is_not_charged_for_it() -> None:
    """The worker took the core: the collective, 55 to 120, ends inside the call, 50 to 130; the next op is at 140."""
    graph = graph_of(
        mark(0, 0, 200), op("c10d::alltoall_base_", 50, 130, collective="all_to_all"), gloo("all_to_all", 55, 120),
        op("aten::add", 140, 150),
    )  # fmt: skip
    call, gap = (rows(graph)[(rows(graph)["segment"] == s) & rows(graph)["op_name"].isin(o)].iloc[0]
                 for s, o in (("T5", ["c10d::alltoall_base_"]), ("T1", ["aten::add"])))  # fmt: skip
    assert (call["latency_us"], gap["blocked_us"], gap["latency_us"]) == (5.0, 65.0, 20.0)


def test_the_collective_is_one_node_of_both_ranks() -> None:
    graph = graph_of(*SYNCHRONOUS)
    collective = graph.nodes[graph.nodes["node_type"] == "collective"]
    assert collective[["start_us", "latency_us", "message_bytes"]].iloc[0].tolist() == [55.0, 65.0, 256.0]
    assert len(collective) == 1


def test_on_a_cpu_an_op_that_computes_is_compute_in_its_threads_chain() -> None:
    nodes = rows(graph_of(*SYNCHRONOUS))
    mm = nodes[nodes["op_name"] == "aten::mm"]
    assert mm["node_type"].tolist() == ["host", "compute"]  # the gap before it, and itself
    assert mm.iloc[1][["flops", "latency_us", "thread", "device", "stream"]].tolist() == [128.0, 30.0, 0, 0, -1]
    assert mm.iloc[1]["segment"] is None or pd.isna(mm.iloc[1]["segment"])


def test_a_collective_that_outlasts_its_wait_is_cut_where_the_waiting_thread_went_on() -> None:
    """Most all-to-alls end in time; one worker was preempted: its range ends at 170, the main thread went on at 125."""
    events: list[Event] = []
    for n, end in enumerate((120, 120, 170)):
        at = 300.0 * n
        events += [
            mark(n, at, at + 300), op("c10d::alltoall_base_", at + 50, at + 60, collective="all_to_all"),
            gloo("all_to_all", at + 55, at + end), op("aten::add", at + 125, at + 130),
        ]  # fmt: skip
    graph = graph_of(*events)
    transfer = graph.nodes[graph.nodes["node_type"] == "collective"]["latency_us"]
    assert transfer.tolist() == [65.0, 65.0, 70.0]
    assert not (graph.nodes["latency_us"] < 0).any()


def test_an_asynchronous_collective_is_not_awaited_right_away() -> None:
    """It ends long after the next op began: the gap after the call does not wait for it."""
    graph = graph_of(
        mark(0, 0, 300), op("c10d::allgather_", 50, 60, collective="all_gather"), gloo("all_gather", 55, 220),
        op("aten::add", 65, 130), op("aten::mul", 230, 240),
    )  # fmt: skip
    assert timed(graph, "waits") == set()


def ddp(*, buckets: int) -> list[Event]:
    """Gradient hooks issue buckets of 64, 128, ... elements; at the end of backward each is waited for and unpacked."""
    events = [mark(0, 0, 400), op("aten::mm", 5, 20)]
    for k in range(buckets):
        at, elements = 30.0 + 30 * k, 64 * (k + 1)
        events += [
            op(HOOK, at, at + 20), op("c10d::allreduce_", at + 5, at + 15, collective="all_reduce"),
            gloo("all_reduce", at + 10, at + 110, thread=9 + k, elements=elements),
            op("aten::as_strided", 200 + 20 * k, 205 + 20 * k, input_dims=f"[[{elements}],[],[]]"),
        ]  # fmt: skip
    return [*events, op("aten::add_", 300, 320)]


def test_buckets_are_awaited_one_after_the_other_when_backward_ends() -> None:
    graph = graph_of(*ddp(buckets=2))
    end, dims = graph.nodes["start_us"] + graph.nodes["latency_us"], graph.nodes["input_dims"].astype(object)
    rank = graph.nodes["rank"]
    result = [(end[exit_], dims[gap + 1]) for exit_, gap in edges_of(graph, "waits") if rank[gap] == 0]
    assert sorted(result) == [(140.0, "[[64],[],[]]"), (170.0, "[[128],[],[]]")]  # (end of bucket, what unpacks it)


def test_the_gap_before_the_first_bucket_is_unpacked_waits_for_it() -> None:
    """The bucket begins at 40, inside the hook's call, and is there at 140; unpacking begins at 200."""
    graph = graph_of(*ddp(buckets=1))
    gap = rows(graph)[(rows(graph)["segment"] == "T1") & (rows(graph)["op_name"] == "aten::as_strided")].iloc[0]
    assert (gap["blocked_us"], gap["latency_us"]) == (100.0, 60.0)


def test_a_third_collective_needs_one_of_two_workers() -> None:
    """Workers begin at 40, 70 and 145; the third follows the first, which ended at 140."""
    events = [e for e in ddp(buckets=3) if not (e.name == "gloo:all_reduce" and e.start_us == 100)]
    graph = graph_of(*events, gloo("all_reduce", 145, 190, thread=9, elements=192))
    queued = graph.edges[(graph.edges["lag_class"] == "stream").to_numpy()]
    start = graph.nodes["start_us"]
    pairs = {(float(start.iloc[a]), float(start.iloc[b])) for a, b in queued[["src", "dst"]].to_numpy().tolist()}
    assert pairs == {(140.0, 145.0)}


def test_a_collective_whose_call_lies_before_the_window_has_no_issuer() -> None:
    graph = graph_of(mark(0, 0, 200), gloo("all_to_all", 5, 40), op("aten::add", 50, 60))
    assert timed(graph, "launches") == set()
    assert counts(graph)["device_work_without_launch"] == 0  # it is no device work


def test_buckets_of_one_size_are_unpacked_in_the_order_they_were_issued() -> None:
    """Two buckets of 64 elements, each unpacked through two views: the first view of each pair waits."""
    bucket = [e for e in ddp(buckets=1) if e.name != "aten::as_strided"]
    second = [replace(e, start_us=e.start_us + 30, end_us=e.end_us + 30) for e in bucket if 30 <= e.start_us < 100]
    second = [replace(e, columns={**e.columns, "thread": 10}) if e.name.startswith("gloo") else e for e in second]
    views = [op("aten::as_strided", at, at + 2, input_dims="[[64],[],[]]") for at in (200, 202, 220, 222)]
    graph = graph_of(*bucket, *second, *views, op("aten::copy_", 204, 219))
    assert awaited(graph) == [(140.0, 200.0), (170.0, 220.0)]  # (end of bucket, where it is unpacked)


def test_two_workers_that_begin_in_another_order_are_reported_apart_by_size() -> None:
    """The second bucket's worker begins first on rank 1; both ranks issued 64, then 128 elements."""
    tables = []
    for rank in (0, 1):
        begin = {64: 71.0 if rank else 69.0, 128: 70.0}
        events = [mark(0, 0, 300), op("aten::mm", 5, 20)]
        for at, elements in ((30, 64), (50, 128)):
            events += [
                op("c10d::allgather_", at, at + 10, collective="all_gather", in_elements=float(elements)),
                gloo("all_gather", begin[elements], 150.0 + elements, thread=elements, elements=elements),
            ]
        tables.append(trace(*events, rank=rank, world_size=2, backend="gloo"))
    graph = build_graph(run_of(*tables))
    result = graph.nodes[graph.nodes["node_type"] == "collective"]
    assert result["message_bytes"].tolist() == [256.0, 512.0]
    assert counts(graph)["collectives_inconsistent"] == 0


def awaited(graph: ExecutionGraph) -> list[tuple[float, float]]:
    """(end of a collective, end of the gap that waits for it) of rank 0."""
    end, rank = graph.nodes["start_us"] + graph.nodes["latency_us"], graph.nodes["rank"]
    return sorted((float(end[a]), float(end[b])) for a, b in edges_of(graph, "waits") if rank[b] == 0)
