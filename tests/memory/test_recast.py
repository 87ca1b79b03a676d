"""Which tensors change their dtype."""

from __future__ import annotations

import pytest

from gnnperf.memory.edits import AllCast, Autocast, ScaledBatch, memory_edits
from gnnperf.memory.given import Variant
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import TensorSlot
from gnnperf.whatif import ChangeDtype, CompressMessages, InputStall, ScaleBatch, ScaleSequence
from tests.whatif.programs import layer

FULL, HALF, INDEX = TensorSlot((4,), "float32"), TensorSlot((4,), "bfloat16"), TensorSlot((4,), "int64")
LAYER = layer(8, 64, 32, 100)
ON_CPU, ON_GPU = (Autocast(of="float32", to="bfloat16", on_gpu=on_gpu) for on_gpu in (False, True))


def _call(name: str, node: int = -1) -> Call:
    return Call(0, name, (), 0, 1, -1, node)


def test_autocast_copies_what_products_take_forward() -> None:
    assert ON_CPU.casts(_call("aten::addmm"), [FULL, HALF, FULL]) == ("bfloat16", "", "bfloat16")
    assert ON_CPU.casts(_call("aten::convolution"), [FULL, FULL]) == ("bfloat16", "bfloat16")
    assert ON_CPU.casts(_call("aten::mm", node=3), [FULL, FULL]) == ("", "")
    assert ON_CPU.casts(_call("aten::gelu"), [FULL]) == ("",)


def test_losses_are_in_float32_and_norms_on_gpus() -> None:
    for variant, norm in ((ON_CPU, ""), (ON_GPU, "float32")):
        assert variant.casts(_call("aten::_log_softmax"), [HALF]) == ("float32",)
        assert variant.casts(_call("aten::native_layer_norm"), [HALF, FULL]) == (norm, "")


@pytest.mark.parametrize("tensor", [FULL, HALF, INDEX])
def test_autocast_leaves_parameters_and_data(tensor: TensorSlot) -> None:
    assert (ON_CPU.parameter(tensor), ON_CPU.source(tensor)) == (tensor, tensor)


def test_a_model_in_another_dtype_is_all_in_it() -> None:
    variant = AllCast(of="float32", to="bfloat16")
    assert variant.parameter(FULL) == variant.source(FULL) == HALF
    assert variant.parameter(INDEX) == INDEX
    assert variant.guess(_call("aten::add"), [FULL, INDEX]) == [HALF, INDEX]
    assert variant.casts(_call("aten::mm"), [FULL]) == ("",)


def test_edits_of_time_change_nothing_and_others_are_named() -> None:
    result = memory_edits(LAYER, (InputStall(10.0), CompressMessages(ratio=0.5)), on_gpu=False)
    assert (result.variant, result.left_out, result.unknown) == (Variant(), (CompressMessages(ratio=0.5),), ())
    longer = memory_edits(LAYER, (ScaleBatch(2.0), ScaleSequence(2.0)), on_gpu=False)
    assert (longer.variant, longer.left_out) == (None, (ScaleSequence(2.0),))  # not that of the batch by itself


def test_factors_multiply_and_dtypes_come_on_top() -> None:
    edits = (ScaleBatch(2.0), ChangeDtype("float32", "bfloat16"), ScaleBatch(0.5), ScaleBatch(4.0))
    result = memory_edits(LAYER, edits, on_gpu=False).variant
    assert isinstance(result, Autocast)
    assert isinstance(result.inner, ScaledBatch)
    assert result.inner.factor == 4.0
