"""Device work: order, streams, siblings, graph launches."""

from __future__ import annotations

import numpy as np
import pytest
from traces import Event, all_reduce, call, copy, kernel, mark, op, run_of, trace

from gnnperf.graph.build import build_graph
from gnnperf.graph.event_columns import RankEvents, rank_events
from gnnperf.graph.works import Works, device_works


def works_of(*events: Event) -> tuple[RankEvents, Works]:
    ranks = rank_events(trace(*events), 0)
    return ranks, device_works(ranks)


def test_works_are_in_order_of_start_with_streams_numbered_by_first_use() -> None:
    events, works = works_of(
        kernel("c", 30, 40, stream=7), kernel("a", 10, 20, stream=20), kernel("b", 20, 25, stream=7)
    )
    assert events.name[works.event].tolist() == ["a", "b", "c"]
    assert works.stream.tolist() == [0, 1, 1]


def test_equal_stream_numbers_of_two_devices_are_two_streams() -> None:
    _, works = works_of(
        kernel("a", 10, 20, stream=7, device=0), kernel("b", 11, 21, stream=7, device=1), kernel("c", 30, 31, device=0)
    )
    assert works.stream.tolist() == [0, 1, 0]


def test_kernels_of_one_op_are_siblings_in_order_of_start() -> None:
    events, works = works_of(
        op("aten::mm", 0, 50),
        call("cudaLaunchKernel", 5, 8, corr=1),
        call("cudaLaunchKernel", 10, 12, corr=2),
        call("cudaLaunchKernel", 60, 62, corr=3),
        kernel("split_k", 20, 30, corr=1),
        kernel("reduce", 30, 40, corr=2),
        kernel("alone", 70, 80, corr=3),
    )
    assert events.name[works.event].tolist() == ["split_k", "reduce", "alone"]
    assert (works.ordinal.tolist(), works.num_siblings.tolist()) == ([0, 1, 0], [2, 2, 1])


def test_a_graph_launch_is_one_work_per_stream_and_states_how_many_kernels_it_holds() -> None:
    table = trace(
        mark(0, 0, 100),
        call("cudaGraphLaunch", 5, 8, corr=9),
        kernel("a", 10, 20, corr=9), kernel("b", 20, 30, corr=9), kernel("c", 31, 45, corr=9),
        kernel("d", 12, 22, corr=9, stream=8),
    )  # fmt: skip
    works = device_works(rank_events(table, 0))
    assert works.num_kernels.tolist() == [3, 1]
    assert (works.begin_ns / 1000).tolist() == [10, 12]
    assert (works.end_ns / 1000).tolist() == [45, 22]
    graph = build_graph(run_of(table))
    fused = graph.nodes[graph.nodes["event_name"] == "cudaGraphLaunch[3 kernels]"]
    assert fused["latency_us"].tolist() == [35.0]
    assert graph.counts is not None
    assert graph.counts["kernels_under_graph_launch"] == 3


def test_a_collective_inside_a_graph_launch_is_not_taken_apart() -> None:
    _, works = works_of(
        call("cudaGraphLaunch", 5, 8, corr=9), kernel("a", 10, 20, corr=9, stream=20), all_reduce(20, 30, corr=9)
    )
    assert works.is_comm.tolist() == [False]


def test_classes_of_work() -> None:
    _, works = works_of(
        kernel("early", 0, 5, corr=77),
        kernel("gemm", 10, 20),
        copy("Memcpy HtoD (Pinned -> Device)", 20, 30, bytes=4096.0),
        all_reduce(30, 40),
    )
    assert works.before_window.tolist() == [True, False, False, False]
    assert works.is_copy.tolist() == [False, False, True, False]
    assert works.is_comm.tolist() == [False, False, False, True]


def test_a_duration_of_zero_becomes_half_a_tick() -> None:
    """Whole microseconds: half a microsecond. Nanoseconds: half of one."""
    coarse = build_graph(run_of(trace(kernel("a", 10, 10), kernel("b", 20, 25)))).nodes
    fine = build_graph(run_of(trace(kernel("a", 10, 10), kernel("b", 20.001, 25)))).nodes
    assert coarse["latency_us"].iloc[:2].tolist() == [0.5, 5.0]
    assert fine["latency_us"].iloc[0] == pytest.approx(0.0005)


def test_flops_are_shared_among_siblings_and_unknown_cost_is_nan() -> None:
    """aten::mm of [64,32] and [32,16] in two kernels: 2 * 64 * 32 * 16 = 65,536 FLOPs, 32,768 each."""
    dims, types = "[[64,32],[32,16]]", '["float","float"]'
    graph = build_graph(
        run_of(
            trace(
                op("aten::mm", 0, 50, input_dims=dims, input_types=types),
                op("vendor::secret", 60, 80, input_dims=dims, input_types=types),
                call("cudaLaunchKernel", 5, 8, corr=1), call("cudaLaunchKernel", 10, 12, corr=2),
                call("cudaLaunchKernel", 61, 62, corr=3),
                kernel("a", 20, 30, corr=1), kernel("b", 30, 40, corr=2), kernel("c", 70, 80, corr=3),
            )
        )
    )  # fmt: skip
    work = graph.nodes[graph.nodes["node_type"] == "compute"]
    np.testing.assert_array_equal(work["flops"], [32768.0, 32768.0, np.nan])
    np.testing.assert_array_equal(work["bytes"], [2 * 3584.0, 2 * 3584.0, np.nan])  # 4 B * (2048 + 512 + 1024) / 2
    assert work["family"].tolist() == ["gemm", "gemm", "unknown"]
    assert work["dtype"].iloc[0] == "float32"


def test_a_memset_takes_no_share_of_the_flops_of_its_op() -> None:
    """A split GEMM clears its output first: all 65,536 FLOPs belong to the GEMM."""
    graph = build_graph(
        run_of(
            trace(
                op("aten::mm", 0, 50, input_dims="[[64,32],[32,16]]", input_types='["float","float"]'),
                call("cudaMemsetAsync", 5, 8, corr=1), call("cudaLaunchKernel", 10, 12, corr=2),
                copy("Memset (Device)", 20, 22, corr=1, bytes=2048.0), kernel("split_k", 25, 40, corr=2),
            )
        )
    )  # fmt: skip
    memset, gemm = (graph.nodes[graph.nodes["node_type"] == t].iloc[0] for t in ("memory", "compute"))
    assert (gemm["flops"], gemm["ordinal"], gemm["num_siblings"]) == (65536.0, 0, 1)
    assert (memset["flops"], memset["bytes"], memset["num_siblings"]) == (0.0, 2048.0, 1)
