from __future__ import annotations

import pytest

from gnnperf.generate.transformer.items import Op
from research.listed.nodes import backward_items, calls_of, forward_items
from research.listed.operator_list import NUMBER, ListedOp
from tests.research.listed.lists import X, op

START = op("h_0_fc", "Linear", "", (X,), X)  # its result gets a gradient


def _names(ops: tuple[ListedOp, ...], name: str, backward: bool = False) -> list[str]:
    call = next(c for c in calls_of(ops, training=True) if c.op.name == name)
    items = backward_items(call) if backward else forward_items(call)
    return [item.name.removeprefix("aten::") for item in items if isinstance(item, Op)]


@pytest.mark.parametrize(
    ("kind", "forward", "backward"),
    [
        ("VECsoftmax", ["_softmax"], ["mul", "_softmax_backward_data"]),
        ("VECpowu", ["pow"], ["pow", "mul", "mul"]),
        ("VECtanh", ["tanh"], ["tanh_backward"]),
        ("VECgelu", ["gelu"], ["gelu_backward"]),
        ("VECmulu", ["mul"], ["mul"]),
        ("VECaddu", ["add"], []),
        ("dropout", ["native_dropout"], ["copy_", "mul", "mul"]),
        ("VECln", ["native_layer_norm"], ["native_layer_norm_backward", "add_", "add_"]),
    ],
)
def test_each_kind_calls_what_torch_calls(kind: str, forward: list[str], backward: list[str]) -> None:
    ops = (START, op("f_1", kind, "h_0_fc", (X,), X))
    assert _names(ops, "f_1") == forward
    assert _names(ops, "f_1", backward=True) == backward


def test_two_gradients_where_two_arguments_want_them_and_none_for_a_mask() -> None:
    two = (START, op("h_0_b", "Linear", "h_0_fc", (X,), X), op("mul_1", "VECmul", "h_0_fc h_0_b", (X, X), X))
    assert _names(two, "mul_1", backward=True) == ["mul", "mul"]
    mask = (op("lt", "misc", "", (X,), X), START, op("where", "where", "lt h_0_fc", (X, X, NUMBER), X))
    assert _names(mask, "where", backward=True) == ["where"]


def _heads(batch: int) -> tuple[ListedOp, ...]:
    whole, split, turned = (batch, 4, 8), (batch, 4, 2, 4), (batch, 2, 4, 4)
    return (
        op("h_0_fc", "Linear", "", (whole,), whole),
        op("view", "misc", "h_0_fc", (whole, NUMBER), split),
        op("permute", "misc", "view", (split,), turned),
        op("matmul", "BMM", "permute", (turned, turned), turned),
    )


def test_heads_of_several_sequences_are_copied_for_a_batched_product() -> None:
    assert _names(_heads(1), "matmul") == ["bmm"]
    assert _names(_heads(3), "matmul") == ["copy_", "bmm"]


def test_the_gradient_of_a_view_of_heads_is_copied() -> None:
    assert _names(_heads(1), "view", backward=True) == ["copy_"]


def test_parts_of_a_split_share_strides_and_their_gradients_are_joined() -> None:
    whole, part = (1, 4, 24), (1, 4, 8)
    ops = (
        op("h_0_fc", "Linear", "", ((1, 4, 8),), whole),
        op("split", "misc", "h_0_fc", (whole,), NUMBER),
        op("getitem_1", "getitem", "split", (NUMBER,), part),
        op("reshape", "misc", "getitem_1", (part,), (32,)),
    )
    assert _names(ops, "reshape") == ["copy_"]  # rows lie 24 apart
    assert _names(ops, "split", backward=True) == ["cat"] and _names(ops, "getitem_1", backward=True) == []


def test_what_uses_a_divided_product_is_divided_and_gets_gradients() -> None:
    """Tensor parallelism: the list divides the product's result, [8, 4] of [8, 16], and not what follows it."""
    ops = (
        op("h_0_fc", "Linear", "", ((8, 8),), (8, 4)),
        op("view", "misc", "h_0_fc", ((8, 16), NUMBER), (2, 4, 16)),
        op("tanh", "VECtanh", "view", ((2, 4, 16),), (2, 4, 16)),
        op("add", "VECadd", "tanh view", ((2, 4, 16), (2, 4, 16)), (2, 4, 16)),
    )
    calls = calls_of(ops, training=True)
    assert [call.op.output for call in calls] == [(8, 4), (2, 4, 4), (2, 4, 4), (2, 4, 4)]
    assert [argument.differentiable for call in calls[1:] for argument in call.arguments] == [True] * 4
