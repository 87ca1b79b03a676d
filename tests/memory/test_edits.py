"""Arguments of ops with another batch."""

import pytest

from gnnperf.memory.edits import AllCast, Autocast, ScaledBatch, memory_edits
from gnnperf.memory.given import Variant
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import Slot, TensorSlot
from gnnperf.whatif import Batch, ChangeDtype, CompressMessages, InputStall, ScaleBatch, ScaleSequence
from tests.whatif.programs import layer

TWICE = ScaledBatch(batch=Batch(frozenset({8, 512}), frozenset({(384, 128), (512, 128)})), factor=2.0)


def tensor(*shape: int) -> TensorSlot:
    return TensorSlot(shape, "float32")


def _arguments(name: str, before: TensorSlot, after: TensorSlot, *rest: Slot) -> tuple[Slot, ...]:
    call = Call(0, name, (before, *rest), 0, 1, -1, -1)
    return TWICE.arguments(call, [before], [after])


def test_data_grow_in_their_batch() -> None:
    assert TWICE.source(tensor(8, 64)).shape == (16, 64)
    assert TWICE.source(tensor(64, 3)).shape == (64, 3)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [("[512, 128]", "[1024, 128]"), ("[-1, 128]", "[-1, 128]"), ("[8, 64, 2, 64]", "[16, 64, 2, 64]"),
     ("[8, 64, -1]", "[16, 64, -1]"), ("[64, 1024]", "[64, 2048]")],
)  # fmt: skip
def test_a_view_has_as_many_elements_as_its_input(size: str, wanted: str) -> None:
    """The first dimension that has a size of the batch; where none has, any that fits, the last one here: 64 x 2048."""
    before, after = tensor(8, 64, 128), tensor(16, 64, 128)
    result = _arguments("aten::view", before, after, size)[1]
    assert result == wanted or (size == "[64, 1024]" and result == "[128, 1024]")


@pytest.mark.parametrize(
    ("op", "before", "after", "rest", "expected"),
    [
        ("view", tensor(512, 128), tensor(512, 128), ("[65536]",), ("[65536]",)),  # what stays stays
        # A size of its own grows with the tensor.
        ("expand", tensor(8, 1, 64), tensor(16, 1, 64), ("[8, 4, 64]", "False"), ("[16, 4, 64]", "False")),
        ("new_empty_strided", tensor(8, 1, 64), tensor(16, 1, 64), ("[8, 4]", "[1, 8]"), ("[16, 4]", "[1, 16]")),
        # A slice that ended with its dimension does so still.
        ("slice", tensor(8, 64), tensor(16, 64), ("0", "2", "8", "1"), ("0", "2", "16", "1")),
        ("slice", tensor(8, 64), tensor(16, 64), ("0", "2", "6", "1"), ("0", "2", "6", "1")),
    ],
)
def test_numbers_go_with_the_tensor(
    op: str, before: TensorSlot, after: TensorSlot, rest: tuple[Slot, ...], expected: tuple[Slot, ...]
) -> None:
    assert _arguments(f"aten::{op}", before, after, *rest)[1:] == expected


def test_a_guess_goes_by_the_rules_of_the_edit() -> None:
    bias, data, weight = tensor(384), tensor(512, 128), tensor(128, 384)
    call = Call(0, "aten::addmm", (bias, data, weight, "1", "1"), 0, 1, -1, -1)
    assert [t.shape for t in TWICE.guess(call, [bias, data, weight])] == [(384,), (1024, 128), (128, 384)]


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
    edits = (ScaleBatch(2.0), ChangeDtype("bfloat16"), ScaleBatch(0.5), ScaleBatch(4.0))
    result = memory_edits(LAYER, edits, on_gpu=False).variant
    assert isinstance(result, Autocast)
    assert isinstance(result.inner, ScaledBatch)
    assert result.inner.factor == 4.0
