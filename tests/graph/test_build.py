"""The joint graph: tensor dependencies, hardware, phases, counts, what is refused."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from toys import edges_of
from traces import Event, all_reduce, annotation, call, copy, counts, graph_of, kernel, mark, op, run_of, trace

from gnnperf.core import Evidence, InputError, Relation, schema, workers
from gnnperf.graph import RankEvents, build
from gnnperf.graph.build import build_graph
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.rank_graph import RankGraph
from gnnperf.graph.steps import StepWindows
from gnnperf.graph.tables import EdgeList, concat_tables, content_keys, node_table
from gnnperf.trace.table import DeviceInfo, TraceTable
from tests.graph.test_storage import assert_equal


def launched(name: str, at: float, corr: int, kernel_name: str, **columns: object) -> list[Event]:
    """An op of 20 us with one kernel right after its launch."""
    return [
        op(name, at, at + 20, **columns),  # type: ignore[arg-type]
        call("cudaLaunchKernel", at + 5, at + 8, corr=corr),
        kernel(kernel_name, at + 10, at + 18, corr=corr),
    ]


def node_of(graph: ExecutionGraph, event_name: str) -> int:
    return int(np.flatnonzero((graph.nodes["event_name"] == event_name).to_numpy())[0])


def test_a_forward_op_feeds_its_backward() -> None:
    graph = graph_of(
        *launched("aten::linear", 0, 1, "fprop"), op("aten::item", 30, 40),
        *launched("aten::mm", 50, 2, "dgrad", forward="aten::linear"),
    )  # fmt: skip
    assert edges_of(graph, "feeds") == {(node_of(graph, "fprop"), node_of(graph, "dgrad"))}
    feeds = graph.edges[(graph.edges["relation"] == "feeds").to_numpy()]
    assert feeds["evidence"].tolist() == [str(Evidence.ID)]


def test_tensor_ids_of_an_execution_trace_come_first() -> None:
    """linear (2 kernels) feeds relu feeds item (host only): last kernel -> kernel, kernel -> the op's host time."""
    table = trace(
        op("aten::linear", 0, 30), call("cudaLaunchKernel", 5, 6, corr=1), call("cudaLaunchKernel", 8, 9, corr=2),
        kernel("gemm", 10, 20, corr=1), kernel("bias", 20, 25, corr=2), *launched("aten::relu", 40, 3, "relu"),
        op("aten::item", 70, 80),
    )  # fmt: skip
    row = {str(n): int(e) for n, e in zip(table.events["name"], table.events["event_id"], strict=True)}
    pairs = [("aten::linear", "aten::relu"), ("aten::relu", "aten::item"), ("aten::relu", "aten::relu")]
    feeds = pd.DataFrame({"producer_event": [row[a] for a, _ in pairs], "consumer_event": [row[b] for _, b in pairs]})
    graph = build_graph(run_of(replace(table, feeds=feeds)))
    item = int(
        np.flatnonzero(((graph.nodes["op_name"] == "aten::item") & (graph.nodes["segment"] == "T5")).to_numpy())[0]
    )
    assert edges_of(graph, "feeds") == {
        (node_of(graph, "bias"), node_of(graph, "relu")), (node_of(graph, "relu"), item),
    }  # fmt: skip


def test_an_op_inside_another_shares_its_nodes_and_a_scope_takes_its_childrens() -> None:
    table = trace(
        op("aten::linear", 0, 30), op("aten::addmm", 2, 28), call("cudaLaunchKernel", 5, 6, corr=1),
        kernel("gemm", 10, 20, corr=1), op("MyBackward0", 40, 90), *launched("aten::relu", 50, 3, "relu"),
    )  # fmt: skip
    row = {str(n): int(e) for n, e in zip(table.events["name"], table.events["event_id"], strict=True)}
    feeds = pd.DataFrame({"producer_event": [row["aten::linear"]], "consumer_event": [row["MyBackward0"]]})
    graph = build_graph(run_of(replace(table, feeds=feeds)))
    assert edges_of(graph, "feeds") == {(node_of(graph, "gemm"), node_of(graph, "relu"))}


def two_ranks() -> tuple[TraceTable, TraceTable]:
    events = [
        mark(0, 0, 200), *launched("aten::mm", 10, 1, "gemm"), op("c10d::allreduce_", 40, 60),
        call("cudaLaunchKernel", 45, 48, corr=2), all_reduce(50, 90, corr=2), call("cudaMemcpyAsync", 100, 110, corr=3),
        copy("Memcpy HtoD (Pinned -> Device)", 112, 120, corr=3, bytes=64.0),
    ]  # fmt: skip
    return trace(*events, world_size=2), trace(*events, rank=1, world_size=2)


def test_one_device_per_rank_and_two_links() -> None:
    graph = build_graph(run_of(*two_ranks()))
    nodes = graph.nodes
    device, link = nodes[nodes["node_type"] == "device"], nodes[nodes["node_type"] == "link"]
    assert (device["op_name"].tolist(), device["rank"].tolist()) == (["Toy GPU", "Toy GPU"], [0, 1])
    assert (link["op_name"].tolist(), link["rank"].tolist()) == (["intra", "host_link"], [-1, -1])
    assert graph.device_names == ("Toy GPU", "Toy GPU")
    assert nodes.loc[[*device.index, *link.index], "step"].eq(-1).all()


def test_work_runs_on_its_ranks_device_and_crosses_its_link() -> None:
    graph = build_graph(run_of(*two_ranks()))
    nodes = graph.nodes
    kind = nodes["node_type"].astype(object).to_numpy()
    for src, dst in edges_of(graph, "runs_on"):
        assert nodes["rank"][src] == nodes["rank"][dst]
        assert (kind[src] in ("compute", "memory", "comm"), kind[dst]) == (True, "device")
    assert len(edges_of(graph, "runs_on")) == 2 * (1 + 1 + 2)
    crossed = {(kind[src], nodes["op_name"][dst]) for src, dst in edges_of(graph, "crosses")}
    assert crossed == {("comm", "intra"), ("memory", "host_link")}
    assert len(edges_of(graph, "connects")) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_ranks_in_copies_of_the_process_give_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    run, here, by_itself = run_of(*two_ranks()), list[int](), build._by_itself
    expected = build_graph(run)

    def noted(events: list[RankEvents], windows: StepWindows, rank_index: int) -> RankGraph:
        here.append(rank_index)
        return by_itself(events, windows, rank_index)

    monkeypatch.setattr(build, "_by_itself", noted)
    monkeypatch.setattr(build, "MANY_ROWS", 1)
    monkeypatch.setattr(workers, "copyable_cores", lambda: 2)
    assert_equal(build_graph(run), expected)
    assert here == [0]  # rank 1: in the copy


def test_a_rank_without_a_named_device_is_unknown() -> None:
    table = two_ranks()[0]
    nameless = replace(table, meta=replace(table.meta, devices=(), world_size=1))
    graph = build_graph(run_of(nameless))
    assert graph.device_names == ("",)
    assert graph.nodes.loc[graph.nodes["node_type"] == "device", "op_name"].tolist() == ["unknown"]


def test_a_file_that_lists_more_devices_than_ranks_gives_each_rank_its_own() -> None:
    listed = (DeviceInfo("first"), DeviceInfo("second"))
    tables = [replace(t, meta=replace(t.meta, devices=listed)) for t in two_ranks()]
    assert build_graph(run_of(*tables)).device_names == ("first", "second")


def test_phases_come_from_names_then_from_what_is_around() -> None:
    graph = build_graph(
        run_of(
            trace(
                mark(0, 0, 300), annotation("## forward ##", 5, 50), op("aten::mm", 10, 20),
                op("autograd::engine::evaluate_function: MmBackward0", 60, 90), op("aten::mul", 65, 80),
                annotation("Optimizer.step#SGD.step", 100, 150), op("aten::add_", 110, 120), op("aten::item", 160, 170),
            )
        )
    )  # fmt: skip
    whole = graph.nodes[graph.nodes["event_id"] >= 0]
    assert dict(zip(whole["op_name"], whole["phase"], strict=True)) == {
        "aten::mm": "forward", "aten::mul": "backward", "aten::add_": "optimizer", "aten::item": "forward",
    }  # fmt: skip


def test_content_keys_tell_lanes_and_ops_apart_and_not_shapes() -> None:
    one, two = "[[8,8],[8,8]]", "[[9,9],[9,9]]"
    graph = build_graph(
        run_of(
            trace(
                mark(0, 0, 100), op("aten::mm", 5, 10, input_dims=one), mark(1, 100, 200),
                op("aten::mm", 105, 115, input_dims=two), op("aten::add", 120, 130),
            )
        )
    )  # fmt: skip
    whole = graph.nodes[graph.nodes["event_id"] >= 0]
    first, second, other = whole["content_key"].tolist()
    assert first == second
    assert first != other


def test_content_keys_are_the_same_in_every_run() -> None:
    """They are in files: a hash that differs between processes or category codes would align nothing."""
    table = node_table(2, node_type="host", op_name=np.array(["aten::mm", None], dtype=object), thread=np.array([0, 1]))
    again = node_table(
        2, node_type="host", op_name=np.array(["aten::add", None], dtype=object), thread=np.array([0, 1])
    )
    joined = concat_tables([again, table])
    columns = ("node_type", "op_name", "thread")
    assert content_keys(joined, columns)[2:].tolist() == content_keys(table, columns).tolist()
    assert content_keys(table, columns).tolist() == [-3597533677867202103, -1577129116390292774]


def test_works_launched_before_the_window_are_counted_and_belong_to_no_step() -> None:
    graph = graph_of(mark(0, 0, 100), op("aten::a", 5, 10), kernel("early", -20, 30, corr=9))
    assert counts(graph)["launched_before_window"] == 1
    assert graph.nodes.loc[graph.nodes["event_name"] == "early", "step"].tolist() == [-1]


def test_a_step_of_the_graph_stands_isolated() -> None:
    steps = [[mark(n, 100 * n, 100 * n + 100), *launched("aten::mm", 100 * n + 10, n + 1, "k")] for n in range(3)]
    tables = [trace(*(e for step in steps for e in step), rank=r, world_size=2) for r in (0, 1)]
    graph = build_graph(run_of(*tables))
    step = graph.step(1).validate()
    assert set(step.nodes["step"]) == {1, -1}
    assert step.num_nodes_by_type() == {
        "host": 10, "compute": 2, "memory": 0, "comm": 0, "collective": 0, "device": 2, "link": 2,
    }  # fmt: skip
    assert [s.step for s in step.steps] == [1]


@pytest.mark.parametrize(
    "events",
    [
        (op("aten::a", 0, 10),),
        (kernel("k", 0, 10),),
        (call("cudaDeviceSynchronize", 0, 10),),
        (annotation("nothing", 0, 10),),
        (mark(0, 0, 0),),
        (op("aten::a", 5, 5), kernel("k", 5, 5)),
    ],
    ids=lambda events: "+".join(e.name for e in events),
)
def test_the_smallest_traces_give_graphs(events: tuple[Event, ...]) -> None:
    graph = graph_of(*events)
    assert graph.steps
    assert np.isfinite(graph.steps[0].makespan_us)
    schema.validate(graph.nodes, schema.NODE_COLUMNS, "nodes")


def test_a_run_without_events_is_refused() -> None:
    with pytest.raises(InputError, match="holds no events"):
        graph_of()


def test_unknown_node_columns_and_missing_edges() -> None:
    with pytest.raises(AssertionError, match="unknown node columns"):
        node_table(1, colour="red")
    assert len(EdgeList().table()) == 0
    moved = EdgeList()
    moved.add(np.array([0]), np.array([1]), Relation.FOLLOWS)
    assert moved.shifted(10).table()[["src", "dst"]].to_numpy().tolist() == [[10, 11]]
