"""Kernels of torch.compile: what Inductor's names tell where no op does."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from traces import MAIN, Event, annotation, call, graph_of, kernel, mark, op, trace

from gnnperf.analytic.memory_bound.calls import chain_ops
from gnnperf.core import EventKind
from gnnperf.graph import build_graph, rank_events
from gnnperf.graph.cost import fused_name
from gnnperf.graph.host import SEGMENTS, host_pieces
from gnnperf.graph.node_tables import opened_events
from gnnperf.trace import read_run

NAME = "triton_poi_fused_add_mul_0"
BUFFERS, OTHER = "[[1000],[1000],[1000]]", "[[500],[500],[500]]"
TYPES = '["float","float","float"]'


def kernels_of(*events: Event) -> pd.DataFrame:
    nodes = graph_of(mark(0, 0, 100), *events).nodes
    return nodes[nodes["stream"] >= 0]


def isolated(name: str, at: float = 60, corr: int = 9) -> list[Event]:
    """A kernel that a graph launches only: no op is around it."""
    return [call("cudaGraphLaunch", at, at + 2, corr=corr), kernel(name, at + 5, at + 9, corr=corr)]


def eager(dims: str, at: float = 5, corr: int = 1) -> list[Event]:
    """The same kernel where an op launched it."""
    return [op(NAME, at, at + 10, input_dims=dims, input_types=TYPES),
            call("cuLaunchKernel", at + 2, at + 4, corr=corr), kernel(NAME, at + 11, at + 14, corr=corr)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "result"),
    [
        (NAME, NAME),
        (f"{NAME}_0d1d2de", NAME),
        ("triton_red_fused_native_layer_norm_10", "triton_red_fused_native_layer_norm_10"),
        ("triton_per_fused_sum_2_0d1d", "triton_per_fused_sum_2"),
        ("triton__0d1d2d", None),  # Inductor's names before they listed ops
        ("ampere_sgemm_128x64_nn", None),
    ],
)
def test_inductors_names(name: str, result: str | None) -> None:
    assert fused_name(name) == result


@pytest.mark.parametrize(
    ("name", "family"),
    [(NAME, "elementwise"), ("triton_red_fused_sum_1", "reduction"), ("triton_per_fused__softmax_2", "reduction"),
     ("triton_tem_fused_mm_3", "gemm"), ("my_kernel", "unknown")],
)  # fmt: skip
def test_the_name_reports_the_family_and_no_size(name: str, family: str) -> None:
    node = kernels_of(*isolated(name)).iloc[0]
    assert node["family"] == family
    assert np.isnan(node["bytes"])
    assert node["op_name"] == (name if family != "unknown" else "cudaGraphLaunch")
    assert node["event_name"] == name


def test_sizes_come_from_ops_of_the_name_in_the_same_trace() -> None:
    nodes = kernels_of(*eager(BUFFERS), *isolated(f"{NAME}_0d1d2d"))
    assert nodes["bytes"].tolist() == [12000.0, 12000.0]  # three buffers of 1,000 float32
    assert nodes["dtype"].tolist() == ["float32", "float32"]
    assert nodes["input_dims"].tolist() == [BUFFERS, BUFFERS]
    assert nodes["op_name"].tolist() == [NAME, NAME]
    assert chain_ops(nodes["op_name"].iloc[1]) == ("add", "mul")


def test_ops_of_one_name_with_several_sizes_tell_none() -> None:
    nodes = kernels_of(*eager(BUFFERS), *eager(OTHER, at=30, corr=2), *isolated(NAME))
    assert nodes["bytes"].fillna(-1).tolist() == [12000.0, 6000.0, -1.0]
    assert nodes["family"].tolist() == ["elementwise"] * 3


@pytest.mark.mirror
def test_compiled_kernels_of_a_public_trace_have_family_and_bytes(mirror: Path) -> None:
    graph = build_graph(read_run(mirror / "pytorch+ao/torchao/prototype/server/amg_example/amg_example_trace.json.gz"))
    nodes = graph.nodes[graph.nodes["node_type"] == "compute"]
    fused = nodes[nodes["event_name"].astype(str).map(fused_name).notna()]
    assert len(fused) == 58
    assert (fused["op_name"].astype(str) == fused["event_name"].astype(str)).all()
    assert fused["family"].astype(str).isin(["elementwise", "reduction", "gemm"]).all()
    assert fused["bytes"].notna().mean() > 0.9


# --- which stretch of host time each profiler event opens in ----------------------------------------------------------


def opened(
    *events: Event, kind: EventKind = EventKind.CPU_OP, marks_us: tuple[float, ...] = ()
) -> list[tuple[int, str, float, int]]:
    """(thread, segment, begin in us, number opened) of each piece."""
    ranks = rank_events(trace(*events), 0)
    pieces = host_pieces(ranks, MAIN, np.array([round(m * 1000) for m in marks_us], dtype=np.int64))
    count = opened_events(ranks, pieces, kind)
    rows = zip(pieces.thread, pieces.segment, pieces.begin_ns / 1000, count, strict=True)
    return [(int(t), str(SEGMENTS[s]), float(b), int(n)) for t, s, b, n in rows]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # an op opens in the gap before it, its children open in it
        ((op("aten::linear", 0, 10), op("aten::t", 1, 3), op("aten::transpose", 1, 2), op("aten::relu", 15, 20)),
         [("T5", 2), ("T1", 1), ("T5", 0)]),
        # back to back: in the gap of no length
        ((op("aten::a", 0, 10), op("aten::b", 10, 20), op("aten::c", 20, 30)),
         [("T5", 0), ("T1", 1), ("T5", 0), ("T1", 1), ("T5", 0)]),
        # children where they open between launches
        ((op("aten::linear", 0, 100), op("aten::t", 5, 10), call("cudaLaunchKernel", 20, 30, corr=1),
          op("aten::add", 40, 60), call("cudaLaunchKernel", 45, 50, corr=2), op("aten::view", 70, 80)),
         [("T2", 1), ("T4", 0), ("T5", 1), ("T4", 0), ("T3", 1)]),
    ],
)  # fmt: skip
def test_where_ops_open(events: tuple[Event, ...], expected: list[tuple[str, int]]) -> None:
    assert [(segment, number) for _, segment, _, number in opened(*events)] == expected


def test_scopes_and_annotations_open_in_gaps_and_are_counted_by_kind() -> None:
    events = (
        op("aten::a", 0, 10), annotation("phase", 11, 40), op("autograd::engine::evaluate_function: Mm", 12, 39),
        op("aten::b", 15, 30),
    )  # fmt: skip
    assert [row[3] for row in opened(*events)] == [0, 2, 0]
    assert [row[3] for row in opened(*events, kind=EventKind.ANNOTATION)] == [0, 1, 0]


def test_threads_do_not_count_each_others_events() -> None:
    result = opened(op("aten::a", 0, 10), op("aten::b", 20, 30), op("aten::x", 12, 14, thread=2),
                   op("aten::y", 16, 18, thread=2))  # fmt: skip
    assert sorted((t, s, n) for t, s, _, n in result) == [
        (MAIN, "T1", 1), (MAIN, "T5", 0), (MAIN, "T5", 0), (2, "T1", 1), (2, "T5", 0), (2, "T5", 0)
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "total"), [("opened_ops", 2), ("opened_ranges", 1)])
def test_nodes_transfer_the_counts(kind: str, total: int) -> None:
    graph = graph_of(
        mark(0, 0, 100), op("aten::mm", 10, 60), call("cudaLaunchKernel", 20, 30, corr=1),
        kernel("gemm", 35, 50, corr=1), op("aten::empty", 70, 80), mark(1, 100, 200), op("aten::mm", 110, 160),
    )  # fmt: skip
    host = graph.nodes[graph.nodes["node_type"] == "host"]
    assert int(host[host["step"] == 0][kind].sum()) == total
    assert (graph.nodes.loc[graph.nodes["node_type"] != "host", kind] == 0).all()
