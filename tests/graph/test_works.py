"""Device work: order, streams, siblings, graph launches."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from traces import Event, all_reduce, call, copy, counts, graph_of, kernel, mark, op, run_of, trace

from gnnperf.graph import RankEvents, build_graph, rank_events, waits
from gnnperf.graph.works import Works, device_works
from gnnperf.trace import read_run


def works_of(*events: Event) -> tuple[RankEvents, Works]:
    ranks = rank_events(trace(*events), 0)
    return ranks, device_works(ranks)


@pytest.mark.parametrize(
    ("kernels", "streams"),
    [
        ([kernel("c", 30, 40, stream=7), kernel("a", 10, 20, stream=20), kernel("b", 20, 25, stream=7)], [0, 1, 1]),
        ([kernel("a", 10, 20), kernel("b", 11, 21, device=1), kernel("c", 30, 31)], [0, 1, 0]),  # of two devices
    ],
)
def test_works_are_in_order_of_start_with_streams_numbered_by_first_use(
    kernels: list[Event], streams: list[int]
) -> None:
    events, works = works_of(*kernels)
    assert events.name[works.event].tolist() == ["a", "b", "c"]
    assert works.stream.tolist() == streams


def test_kernels_of_one_op_are_siblings_in_order_of_start() -> None:
    events, works = works_of(
        op("aten::mm", 0, 50), call("cudaLaunchKernel", 5, 8, corr=1), call("cudaLaunchKernel", 10, 12, corr=2),
        call("cudaLaunchKernel", 60, 62, corr=3), kernel("split_k", 20, 30, corr=1),
        kernel("reduce", 30, 40, corr=2), kernel("alone", 70, 80, corr=3),
    )  # fmt: skip
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
    assert counts(graph)["kernels_under_graph_launch"] == 3


def test_a_collective_inside_a_graph_launch_is_not_taken_apart() -> None:
    _, works = works_of(
        call("cudaGraphLaunch", 5, 8, corr=9), kernel("a", 10, 20, corr=9, stream=20), all_reduce(20, 30, corr=9)
    )
    assert works.is_comm.tolist() == [False]


def test_classes_of_work() -> None:
    _, works = works_of(
        kernel("early", 0, 5, corr=77), kernel("gemm", 10, 20),
        copy("Memcpy HtoD (Pinned -> Device)", 20, 30, bytes=4096.0), all_reduce(30, 40),
    )  # fmt: skip
    assert works.before_window.tolist() == [True, False, False, False]
    assert works.is_copy.tolist() == [False, False, True, False]
    assert works.is_comm.tolist() == [False, False, False, True]


def test_a_duration_of_zero_becomes_half_a_tick() -> None:
    """Whole microseconds: half a microsecond. Nanoseconds: half of one."""
    coarse = graph_of(kernel("a", 10, 10), kernel("b", 20, 25)).nodes
    fine = graph_of(kernel("a", 10, 10), kernel("b", 20.001, 25)).nodes
    assert coarse["latency_us"].iloc[:2].tolist() == [0.5, 5.0]
    assert fine["latency_us"].iloc[0] == pytest.approx(0.0005)


def test_flops_are_shared_among_siblings_and_unknown_cost_is_nan() -> None:
    """aten::mm of [64,32] and [32,16] in two kernels: 2 * 64 * 32 * 16 = 65,536 FLOPs, 32,768 each."""
    dims, types = "[[64,32],[32,16]]", '["float","float"]'
    graph = graph_of(
        op("aten::mm", 0, 50, input_dims=dims, input_types=types),
        op("vendor::secret", 60, 80, input_dims=dims, input_types=types),
        call("cudaLaunchKernel", 5, 8, corr=1), call("cudaLaunchKernel", 10, 12, corr=2),
        call("cudaLaunchKernel", 61, 62, corr=3),
        kernel("a", 20, 30, corr=1), kernel("b", 30, 40, corr=2), kernel("c", 70, 80, corr=3),
    )  # fmt: skip
    work = graph.nodes[graph.nodes["node_type"] == "compute"]
    np.testing.assert_array_equal(work["flops"], [32768.0, 32768.0, np.nan])
    np.testing.assert_array_equal(work["bytes"], [2 * 3584.0, 2 * 3584.0, np.nan])  # 4 B * (2048 + 512 + 1024) / 2
    assert work["family"].tolist() == ["gemm", "gemm", "unknown"]
    assert work["dtype"].iloc[0] == "float32"


def test_a_memset_takes_no_share_of_the_flops_of_its_op() -> None:
    """A split GEMM clears its output first: all 65,536 FLOPs belong to the GEMM."""
    graph = graph_of(
        op("aten::mm", 0, 50, input_dims="[[64,32],[32,16]]", input_types='["float","float"]'),
        call("cudaMemsetAsync", 5, 8, corr=1), call("cudaLaunchKernel", 10, 12, corr=2),
        copy("Memset (Device)", 20, 22, corr=1, bytes=2048.0), kernel("split_k", 25, 40, corr=2),
    )  # fmt: skip
    memset, gemm = (graph.nodes[graph.nodes["node_type"] == t].iloc[0] for t in ("memory", "compute"))
    assert (gemm["flops"], gemm["ordinal"], gemm["num_siblings"]) == (65536.0, 0, 1)
    assert (memset["flops"], memset["bytes"], memset["num_siblings"]) == (0.0, 2048.0, 1)


# --- cUDA graphs: kernels of a replay are those that the capture pass noted down, where it was recorded ---------------


DIMS, SMALL = "[[64,32],[32,16]]", "[[8,32],[32,16]]"
TYPES = '["float","float"]'


def capture(at: float, *, dims: str = DIMS, second: str = "aten::relu") -> list[Event]:
    """A pass of 40 us that notes down a product, a memset and one more kernel, and starts nothing."""
    return [
        call("cudaStreamBeginCapture", at, at + 1),
        op("aten::mm", at + 2, at + 12, input_dims=dims, input_types=TYPES), call("cudaLaunchKernel", at + 4, at + 6),
        op("aten::zero_", at + 13, at + 19), call("cudaMemsetAsync", at + 14, at + 16),
        op(second, at + 20, at + 28, input_dims="[[64,16]]", input_types='["float"]'),
        call("cuLaunchKernelEx", at + 22, at + 24),
        call("cudaStreamEndCapture", at + 30, at + 31),
    ]  # fmt: skip


def replay(at: float, corr: int, last: str = "relu_kernel", stream: int = 7) -> list[Event]:
    """A graph launch whose three works take 10, 1 and 5 us, one after the other."""
    zero = kernel("Memset (Device)", at + 20, at + 21, corr=corr)
    zero.kind = type(zero.kind)("memset")
    return [
        call("cudaGraphLaunch", at, at + 5, corr=corr),
        kernel("gemm", at + 10, at + 20, corr=corr), zero,
        kernel(last, at + 21, at + 26, corr=corr, stream=stream),
    ]  # fmt: skip


def test_a_replays_kernels_have_the_ops_sizes_and_step_of_capture_and_replay() -> None:
    graph = graph_of(
        mark(0, 0, 100), *capture(10), mark(1, 100, 200), *replay(110, 9), mark(2, 200, 300), *replay(210, 10)
    )
    nodes = graph.nodes[graph.nodes["stream"] >= 0]
    assert nodes["event_name"].tolist() == ["gemm", "Memset (Device)", "relu_kernel"] * 2
    assert nodes["op_name"].tolist() == ["aten::mm", "aten::zero_", "aten::relu"] * 2
    assert nodes["flops"].tolist()[:1] == [2.0 * 64 * 32 * 16]
    assert nodes["input_dims"].tolist()[3] == DIMS
    assert nodes["step"].tolist() == [1, 1, 1, 2, 2, 2]
    assert nodes["num_siblings"].tolist() == [1] * 6  # a replay's kernel is no sibling of another replay's
    assert nodes["latency_us"].tolist() == [10.0, 1.0, 5.0] * 2
    assert (counts(graph)["kernels_tied_to_capture"], counts(graph)["kernels_under_graph_launch"]) == (6, 0)


def test_every_kernel_starts_after_the_call_and_after_the_one_before() -> None:
    graph = graph_of(mark(0, 0, 100), *capture(10), *replay(60, 9))
    device = graph.nodes.index[graph.nodes["stream"] >= 0].tolist()
    edges = graph.edges
    launch = graph.nodes.index[graph.nodes["event_name"] == "cudaGraphLaunch"].tolist()
    started = edges[(edges["relation"] == "launches") & edges["src"].isin(launch)]
    assert started["dst"].tolist() == device
    inside = edges[(edges["relation"] == "follows") & edges["src"].isin(device)]
    assert list(zip(inside["src"], inside["dst"], strict=True)) == list(pairwise(device))


@pytest.mark.parametrize(
    "events",
    [
        [*replay(60, 9)],  # no capture
        [*capture(10)[:-1], *replay(60, 9)],  # one that nothing saw end
        [*capture(10), op("aten::mul", 44, 48), call("cudaLaunchKernel", 45, 46), *replay(60, 9)[:-1]],  # a work less
        [*capture(10), *replay(60, 9, stream=8)],  # two streams: nothing knows the order
        [*capture(0), *capture(35, dims=SMALL), *replay(70, 9)],  # two captures with other sizes
        [*capture(10, second="triton_poi_fused_add_0"), *replay(60, 9, last="triton_poi_fused_mul_0")],
    ],
    ids=["none", "open", "fewer", "streams", "ambiguous", "names"],
)
def test_what_does_not_fit_for_certain_stays_one_work(events: list[Event]) -> None:
    _, works = works_of(mark(0, 0, 100), *events)
    assert works.num_kernels.max() >= 2
    assert (works.recorded_op == works.op).all()


def test_captures_that_agree_serve_alike_and_inductors_name_is_compared_without_signature() -> None:
    fused = "triton_poi_fused_relu_0"
    again = [*capture(0, second=fused), *capture(35, second=fused)]
    events, works = works_of(mark(0, 0, 100), *again, *replay(70, 9, last=f"{fused}_0d1d2de"))
    assert works.num_kernels.tolist() == [1, 1, 1]
    assert events.name[works.recorded_op].tolist() == ["aten::mm", "aten::zero_", fused]


def test_a_replay_takes_one_place_in_the_launch_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of two: of the second replay's call, only the last kernel of the replay before the first is awaited."""
    monkeypatch.setattr(waits, "LAUNCH_QUEUE_DEPTH", 2)
    replays = [*replay(60, 9), *replay(160, 10), *replay(260, 11)]
    graph = graph_of(mark(0, 0, 400), *capture(10), *replays)
    nodes, edges = graph.nodes, graph.edges
    third = int(nodes.index[nodes["event_name"] == "cudaGraphLaunch"][2])
    last = int(nodes.index[nodes["event_name"] == "relu_kernel"][0])
    awaited = edges[(edges["relation"] == "waits") & edges["dst"].isin(nodes.index[nodes["stream"] < 0])]
    assert list(zip(awaited["src"], awaited["dst"], strict=True)) == [(last, third)]


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("file", "kernels"),
    [
        ("pytorch+ao/torchao/prototype/server/amg_example/amg_example_trace.json.gz", 497),
        ("AMD-AGI+TraceLens/tests/traces/inference/vllm_decode_full/graph_execution.json.gz", 421),
    ],
)
def test_public_replays_without_their_capture_stay_whole(file: str, kernels: int, mirror: Path) -> None:
    graph = build_graph(read_run(mirror / file))
    assert counts(graph)["kernels_tied_to_capture"] == 0
    assert counts(graph)["kernels_under_graph_launch"] == kernels
