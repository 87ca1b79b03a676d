"""The plan against the same network captured: a program of nn modules under DDP that torch's own profiler saw."""

from collections import Counter

import pandas as pd
import pytest

from gnnperf.core import NodeType, OpFamily
from gnnperf.generate.capturing.api import captured_run
from gnnperf.generate.convolutional.build import build_network, replica_tensors
from gnnperf.generate.convolutional.plan import Block
from gnnperf.generate.shapes import parse, tensors
from gnnperf.graph import build_graph
from gnnperf.memory import Part, peak_memory, planned_peak
from research.recording.workloads.cnn import Cnn, Layout
from tests.generate.convolutional.networks import recorded_layout

# On a CPU ops inside of these are not distinguished; the work is the same.
PLAIN = {
    "conv2d": "convolution", "cudnn_convolution": "convolution", "cudnn_batch_norm": "batch_norm",
    "cudnn_batch_norm_backward": "batch_norm_backward", "native_batch_norm_backward": "batch_norm_backward",
    "linear": "addmm", "clamp_min": "relu",
}  # fmt: skip
COMPARED = ("convolution", "convolution_backward", "batch_norm", "batch_norm_backward", "relu", "threshold_backward",
            "mm", "add", "mean", "div", "nll_loss_backward", "_log_softmax_backward_data", "_fused_sgd_")  # fmt: skip


def _calls(nodes: pd.DataFrame) -> Counter[tuple[object, ...]]:
    """(op, phase, shapes of its first tensor and weight) -> how many."""
    result: Counter[tuple[object, ...]] = Counter()
    columns = nodes[["op_name", "phase", "input_dims"]].astype(str)
    for name, phase, dims in columns.itertuples(index=False, name=None):
        plain = name.removeprefix("aten::")
        op = PLAIN.get(plain, plain)
        if op in COMPARED:
            shapes = [s for argument in parse(dims) for s in tensors(argument)] if phase != "optimizer" else []
            many = 3 if op.startswith("convolution") else 1
            result[op, phase, *shapes[: min(many, 2 if op == "convolution" else many)]] += 1
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "block"), [(Layout.BASIC, Block.BASIC), (Layout.BOTTLENECK, Block.BOTTLENECK)])
def test_ops_shapes_messages_and_memory_are_those_of_the_captured_program(layout: Layout, block: Block) -> None:
    """One account of memory asks torch what each op returns and keeps, the other one knows it from the layers."""
    size = Cnn(blocks=2, channels=16, image=32, batch=8, layout=layout)
    run = captured_run(lambda: size.build().step, 2, ranks=(0,), steps=1)
    captured, planned = build_graph(run).nodes, build_network(recorded_layout(block, 2)).nodes
    works = [n[(n["node_type"] == NodeType.COMPUTE).to_numpy()] for n in (captured, planned)]
    assert _calls(works[1]) == _calls(works[0])
    assert sum(_calls(works[1]).values()) > 90  # nothing that is compared is left out by its name
    products = [n["flops"][(n["family"] == OpFamily.CONV).to_numpy()].sum() for n in works]
    assert products[0] == products[1]
    arrivals = [n[((n["node_type"] == NodeType.COMM) & (n["segment"] == "arrive")).to_numpy()] for n in
                (captured, planned)]  # fmt: skip
    sent = [list(zip(a["collective"].astype(str), a["message_bytes"], strict=True)) for a in arrivals]
    assert sent[0] == sent[1]
    (account,), (tensors_,) = peak_memory(run, on_gpu=True), replica_tensors(recorded_layout(block, 2))
    peak = planned_peak(tensors_)
    assert peak.peak_bytes == pytest.approx(account.peak_bytes, rel=0.005)
    for part in (Part.PARAMETERS, Part.OPTIMIZER_STATE):
        assert peak.parts_bytes[part] == account.parts_bytes[part]
    assert abs(peak.buckets_bytes - account.buckets_bytes) < 512  # in blocks or not
