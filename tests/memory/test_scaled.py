"""Arguments of ops with another batch."""

from __future__ import annotations

import pytest

from gnnperf.memory.edits import ScaledBatch
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import Slot, TensorSlot
from gnnperf.whatif.batch_shapes import Batch

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


def test_a_view_of_what_stays_stays() -> None:
    weight = tensor(512, 128)
    assert _arguments("aten::view", weight, weight, "[65536]")[1] == "[65536]"


def test_a_size_of_its_own_grows_with_the_tensor() -> None:
    before, after = tensor(8, 1, 64), tensor(16, 1, 64)
    assert _arguments("aten::expand", before, after, "[8, 4, 64]", "False")[1] == "[16, 4, 64]"
    assert _arguments("aten::new_empty_strided", before, after, "[8, 4]", "[1, 8]")[1:3] == ("[16, 4]", "[1, 16]")


def test_a_slice_that_ended_with_its_dimension_does_so_still() -> None:
    before, after = tensor(8, 64), tensor(16, 64)
    assert _arguments("aten::slice", before, after, "0", "2", "8", "1")[3] == "16"
    assert _arguments("aten::slice", before, after, "0", "2", "6", "1")[3] == "6"


def test_a_guess_goes_by_the_rules_of_the_edit() -> None:
    bias, data, weight = tensor(384), tensor(512, 128), tensor(128, 384)
    call = Call(0, "aten::addmm", (bias, data, weight, "1", "1"), 0, 1, -1, -1)
    assert [t.shape for t in TWICE.guess(call, [bias, data, weight])] == [(384,), (1024, 128), (128, 384)]
