"""A mapping becomes a plan, or one message."""

from __future__ import annotations

from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.convolutional.plan import Block, ConvolutionalPlan, NetworkOptimizer
from gnnperf.generate.families import read_plan

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
