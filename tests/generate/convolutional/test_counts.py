"""Parameters, FLOPs, buckets and messages against published and hand-computed numbers."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core import InputError, NodeType, OpFamily
from gnnperf.generate.convolutional.build import buckets, build_network, replica_tensors
from gnnperf.generate.convolutional.network import network_passes
from gnnperf.generate.convolutional.plan import Block, ConvolutionalPlan, NetworkOptimizer
from gnnperf.generate.families import read_plan
from gnnperf.generate.uses import Stretch
from gnnperf.memory.measured_memory import Part, PeakMemory
from gnnperf.memory.planned import ASKED, KEPT, courses, in_blocks, planned_peak
from tests.generate.convolutional.networks import shipped, tiny


def _flops(nodes: pd.DataFrame, phase: str) -> float:
    chosen = nodes["family"].isin([str(OpFamily.CONV), str(OpFamily.GEMM)]) & (nodes["phase"] == phase)
    return float(nodes["flops"][chosen.to_numpy()].sum())


@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds", "tensors"),
    [("resnet50", 25_557_032, 4_089_184_256, 161), ("resnet18", 11_689_512, 1_814_073_344, 62)],
)
def test_the_numbers_that_torchvision_publishes(name: str, parameters: int, multiply_adds: int, tensors: int) -> None:
    """torchvision.models: num_params and _ops (4.09 and 1.81 GFLOPs: it counts a multiply-add as one)."""
    plan = shipped(name)
    result = network_passes(plan).parameters
    assert (sum(result), len(result)) == (parameters, tensors)
    nodes = build_network(plan).nodes
    assert _flops(nodes, "forward") == 2 * plan.training.batch * multiply_adds
    first = 2 * plan.training.batch * 64 * 3 * 7 * 7 * 112 * 112  # images need no gradient
    assert _flops(nodes, "backward") == 2 * _flops(nodes, "forward") - first


def test_buckets_of_resnet50() -> None:
    """The output layer fills the first bucket of a mebibyte; the others are closed by what fills 25."""
    plan = shipped("resnet50", replicas=8)
    sizes = [4 * sum(bucket) for bucket in buckets(plan, network_passes(plan))]
    assert sizes == [8_196_000, 31_502_336, 26_255_360, 26_550_272, 9_724_160]
    assert sum(sizes) == 4 * 25_557_032


def test_tiny_by_hand() -> None:
    """Stem 4 x 3 x 9, two convolutions 4 x 4 x 9, three norms of 4 + 4, output 3 x 4 + 3."""
    passes = network_passes(tiny())
    assert passes.parameters == (108, 4, 4, 144, 4, 4, 144, 4, 4, 12, 3)
    assert passes.norm_channels == (4, 4, 4)
    pixels = 2 * 8 * 8
    assert _flops(build_network(tiny()).nodes, "forward") == 2 * (pixels * (108 + 144 + 144) + 2 * 12)


def test_what_ddp_sends() -> None:
    """Means and variances of three norms of 4, their counters, and all gradients; a copy of each there and back."""
    nodes = build_network(tiny(replicas=8)).nodes
    sent = nodes[(nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()]
    assert list(zip(sent["collective"].astype(str), sent["message_bytes"], sent["group_size"], strict=True)) == [
        ("broadcast", 3 * 2 * 4 * 4.0, 8), ("broadcast", 3 * 8.0, 8), ("all_reduce", 4.0 * 435, 8),
    ]  # fmt: skip
    launched = nodes[(nodes["node_type"] == NodeType.COMPUTE).to_numpy()]
    assert (launched["op_name"] == "aten::mul").sum() == 11
    assert ((launched["op_name"] == "aten::copy_") & (launched["phase"] == "backward")).sum() == 11
    assert ((launched["op_name"] == "aten::copy_") & (launched["phase"] == "forward")).sum() == 9


@given(st.floats(min_value=1.0, max_value=1e8))
def test_buckets_hold_every_gradient_once(bucket_bytes: float) -> None:
    plan = shipped("resnet18", replicas=2, bucket_bytes=bucket_bytes)
    passes = network_passes(plan)
    result = buckets(plan, passes)
    assert sorted(n for bucket in result for n in bucket) == sorted(passes.parameters)
    assert all(4 * sum(bucket) >= min(bucket_bytes, 1 << 20) for bucket in result[:-1])


def test_half_precision_casts_every_parameter_of_a_product_once() -> None:
    """54 weights and one bias forward, 55 gradients backward, images and logits; twice the layout of every product."""
    nodes = build_network(shipped("resnet50", dtype="float16")).nodes
    launched = nodes[(nodes["node_type"] == NodeType.COMPUTE).to_numpy()]
    names, phase = launched["op_name"].astype(str), launched["phase"].astype(str)
    assert ((names == "aten::copy_") & (phase == "forward")).sum() == 55 + 2
    assert ((names == "aten::copy_") & (phase == "backward")).sum() == 55 + 1
    assert (names == "triton_poi_fused_layout").sum() == 53 * 4 - 1  # images need no gradient
    last = build_network(shipped("resnet50", dtype="float16", channels_last=True)).nodes
    assert (last["op_name"].astype(str) == "triton_poi_fused_layout").sum() == 0


PARAMETERS = 435


def _peak(plan: ConvolutionalPlan) -> PeakMemory:
    return planned_peak(*replica_tensors(plan))


def test_between_the_passes_of_tiny() -> None:
    """Five images of 4 channels (three convolutions' results, their norms' where ReLU and sum are in place, less one).

    stem, its norm; conv 0, norm 0; conv 1, norm 1: six of 2 x 4 x 8 x 8 float32; mean and deviation of three norms;
    the mean over the image [2, 4] and the logarithms [2, 3].
    """
    first = replica_tensors(tiny())[0].stretches[0]
    assert isinstance(first, Stretch)
    forward, backward, _ = courses(first.pair, in_blocks(lambda n: n))
    image = 4 * 2 * 4 * 8 * 8
    assert forward.net[ASKED] == 6 * image + 3 * 2 * 4 * 4 + 4 * (2 * 4 + 2 * 3)
    assert (forward.net + backward.net)[ASKED] == 0
    assert backward.net[KEPT] == 4 * PARAMETERS


def test_what_is_always_there() -> None:
    """Parameters and momentum; images, labels, statistics and counters; DDP's copies of gradients."""
    result = _peak(tiny(replicas=2))
    assert result.parts_bytes[Part.PARAMETERS] == result.parts_bytes[Part.OPTIMIZER_STATE] == 4 * PARAMETERS
    assert result.parts_bytes[Part.INPUTS] == 4 * 2 * 3 * 8 * 8 + 2 * 8 + 3 * (4 + 4) * 4 + 3 * 8
    assert result.buckets_bytes == 2048  # 1740 bytes in blocks of 512
    assert _peak(tiny()).buckets_bytes == 0


@pytest.mark.parametrize("optimizer", list(NetworkOptimizer))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_is_let_go_at_the_end(optimizer: NetworkOptimizer, dtype: str) -> None:
    """`planned_peak` asserts it."""
    plan = shipped("resnet18", replicas=2, optimizer=optimizer, dtype=dtype)
    assert _peak(plan).peak_bytes > 3 * 4 * 11_689_512


def test_memory_grows_with_the_batch_and_falls_with_the_dtype() -> None:
    one, two = (_peak(shipped("resnet50", batch=n)).parts_bytes[Part.ACTIVATIONS] for n in (32, 64))
    assert two == pytest.approx(2 * one, rel=1e-3)
    half = _peak(shipped("resnet50", batch=32, dtype="float16")).parts_bytes[Part.ACTIVATIONS]
    assert 0.5 < half / one < 0.6  # and copies of parameters


RAW: dict[str, Any] = {
    "name": "a",
    "network": {"block": "basic", "blocks": [1, 2], "widths": [8, 16], "strides": [1, 2]},
    "training": {"batch": 4, "optimizer": "fused", "bucket_bytes": 1000},
}


def test_values_are_read_and_the_rest_is_default() -> None:
    plan = read_plan(RAW, "plan")
    assert isinstance(plan, ConvolutionalPlan)
    assert (plan.network.block, plan.network.blocks, plan.network.image) == (Block.BASIC, (1, 2), 224)
    training = plan.training
    assert (training.optimizer, training.bucket_bytes, plan.replicas.data) == (NetworkOptimizer.FUSED, 1000.0, 1)


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("network", "block", "wide", "bad value 'wide'"),
        ("network", "blocks", "three", "bad value 'three'. Allowed: a list"),
        ("network", "blocks", [1, 2, 3], "network.widths"),
        ("network", "strides", [0, 1], "network.strides"),
        ("network", "stem_kernel", 4, "an odd number"),
        ("network", "stem_pool", 1, "true or false"),
        ("network", "depth", 50, "unknown key 'depth'"),
        ("training", "batch", 0, "training.batch"),
        ("training", "batch", True, "a whole number"),
        ("training", "dtype", "float8", "training.dtype"),
    ],
)
def test_what_cannot_be_is_one_message(section: str, key: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_plan({**RAW, section: {**RAW[section], key: value}}, "plan")
    assert section in str(refused.value)


def test_a_missing_key_and_an_unknown_section_are_named() -> None:
    with pytest.raises(InputError, match="batch is required"):
        read_plan({**RAW, "training": {}}, "plan")
    with pytest.raises(InputError, match="unknown key 'parallelism'"):
        read_plan({**RAW, "parallelism": {}}, "plan")
