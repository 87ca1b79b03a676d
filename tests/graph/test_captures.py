"""CUDA graphs: kernels of a replay are those that the capture pass noted down, where it was recorded."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from traces import Event, call, kernel, mark, op, run_of, trace

from gnnperf.graph import waits
from gnnperf.graph.build import build_graph
from gnnperf.graph.event_columns import RankEvents, rank_events
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.works import Works, device_works
from gnnperf.trace import read_run

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


def works_of(*events: Event) -> tuple[RankEvents, Works]:
    ranks = rank_events(trace(*events), 0)
    return ranks, device_works(ranks)


def graph_of(*events: Event) -> ExecutionGraph:
    return build_graph(run_of(trace(*events)))


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
    assert graph.counts is not None
    assert (graph.counts["kernels_tied_to_capture"], graph.counts["kernels_under_graph_launch"]) == (6, 0)


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
    assert graph.counts is not None
    assert graph.counts["kernels_tied_to_capture"] == 0
    assert graph.counts["kernels_under_graph_launch"] == kernels
