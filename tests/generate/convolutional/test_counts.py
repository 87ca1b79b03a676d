"""Parameters, FLOPs, buckets and messages against published and hand-computed numbers."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.schema import NodeType, OpFamily
from gnnperf.generate.convolutional.build import buckets, build_network
from gnnperf.generate.convolutional.network import network_passes
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
