"""The step with another batch: data that the step reads grow, and what is made of them follows.

recorded   data [8,64]    embedding -> [8,64,128]     view "[512, 128]"     addmm [512,128] x [128,384] -> [512,384]
actual     data [16,64]   embedding -> [16,64,128]    view "[1024, 128]"    addmm [1024,128] x [128,384] -> [1024,384]

Which sizes of data are batch is read off the graph (`gnnperf.whatif.batch_shapes`). Sizes that ops take as numbers are
made to fit: a view has as many elements as its input. The ops are taken to stay, and be as many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

from gnnperf.core import Phase
from gnnperf.generate import Argument, Shape
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import Slot, TensorSlot, with_tensors
from gnnperf.whatif import Batch, grown, op_of, scale_call

# Place of an argument that is a size (native_functions.yaml of PyTorch).
_VIEWS = dict.fromkeys(("view", "_unsafe_view", "reshape", "_reshape_alias"), 1)
_SIZE_AT = {
    **dict.fromkeys(("expand", "resize_", "as_strided", "new_empty", "new_zeros", "new_ones", "new_full",
                     "new_empty_strided", "split_with_sizes", "slice_backward", "select_backward", "sum_to_size"), 1),
    **dict.fromkeys(("empty", "empty_strided", "zeros", "ones", "full", "rand", "randn"), 0),
}  # fmt: skip
_STRIDES_AT = {"as_strided": 2, "_reshape_alias": 2, "new_empty_strided": 2, "empty_strided": 1}
_SLICE, _AXIS_AT, _END_AT = "slice", 1, 3
_REST = -1  # a size that torch works out


@dataclass(frozen=True)
class ScaledBatch:
    """Every rank's batch is larger or smaller.

    Attributes:
        batch: what is batch in the step.
        factor: new batch / old batch.
    """

    batch: Batch
    factor: float

    def source(self, recorded: TensorSlot) -> TensorSlot:
        """Data: its first dimension that has a size of the batch."""
        return replace(recorded, shape=self.batch.scaled(recorded.shape, self.factor))

    def parameter(self, recorded: TensorSlot) -> TensorSlot:
        """Parameters stay."""
        return recorded

    def casts(self, call: Call, actual: Sequence[TensorSlot]) -> tuple[str, ...]:
        """None."""
        return ("",) * len(actual)

    def arguments(self, call: Call, recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot]) -> tuple[Slot, ...]:
        """Tensors as they are, and the sizes, strides and ends that go with them."""
        op, slots = op_of(call.name), list(with_tensors(call.slots, list(actual)))
        at = _VIEWS.get(op, _SIZE_AT.get(op, len(slots)))
        if at >= len(slots) or (size := _numbers(slots[at])) is None:
            return self._with_end(op, slots, recorded, actual)
        wanted = self._viewed(size, actual[0]) if op in _VIEWS and actual else self._sized(size, recorded, actual)
        slots[at] = json.dumps(list(wanted))
        strides_at = _STRIDES_AT.get(op, len(slots))
        if strides_at < len(slots) and (strides := _numbers(slots[strides_at])) is not None:
            slots[strides_at] = json.dumps(list(_strides(strides, size, wanted)))
        return tuple(slots)

    def guess(self, call: Call, recorded: Sequence[TensorSlot]) -> Sequence[TensorSlot]:
        """By the rules that the edit of a graph goes by."""
        phase = Phase.BACKWARD if call.node >= 0 else Phase.FORWARD
        rest = iter(recorded)
        shapes: list[Argument] = [
            next(rest).shape if isinstance(slot, TensorSlot)
            else tuple(next(rest).shape for _ in slot) if isinstance(slot, tuple) else ()
            for slot in call.slots
        ]  # fmt: skip
        result = scale_call((call.name, phase, tuple(shapes)), self.batch, self.factor).arguments
        flat = [
            shape
            for slot, argument in zip(call.slots, result, strict=True)
            for shape in (argument if isinstance(slot, tuple) else (argument,) if isinstance(slot, TensorSlot) else ())
        ]
        return [replace(tensor, shape=cast(Shape, shape)) for tensor, shape in zip(recorded, flat, strict=True)]

    def _viewed(self, size: Shape, actual: TensorSlot) -> Shape:
        """The size with one dimension scaled, of as many elements as the input: the likeliest such dimension."""
        if _REST in size:
            fixed = [place for place, n in enumerate(size) if n in self.batch.sizes and n != _REST]
            fits = [grown(size, place, self.factor) for place in fixed]
            known = next((f for f in fits if _divides(f, actual.shape)), size)
            return known if _divides(known, actual.shape) else size
        whole = (each for each in (size, *self._scaled(size)) if prod(each) == prod(actual.shape))
        return next(whole, size)

    def _scaled(self, size: Shape) -> Iterator[Shape]:
        """First by dimensions that have a size of the batch."""
        order = sorted(range(len(size)), key=lambda place: size[place] not in self.batch.sizes)
        return (grown(size, place, self.factor) for place in order)

    def _sized(self, size: Shape, recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot]) -> Shape:
        """A size of its own grows as the first tensor does: as data, unless that stays as it is."""
        if actual and (tuple(recorded) == tuple(actual) or _REST in size):
            return size
        if not actual and size in self.batch.parameters:
            return size
        return self.batch.scaled(size, self.factor)

    def _with_end(
        self, op: str, slots: list[Slot], recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot]
    ) -> tuple[Slot, ...]:
        """A slice that ended where its dimension did."""
        if op == _SLICE and len(slots) > _END_AT and recorded and recorded[0].shape:
            axis, end = slots[_AXIS_AT], slots[_END_AT]
            place = int(axis) if isinstance(axis, str) and axis.lstrip("-").isdigit() else 0
            if end == str(recorded[0].shape[place]):
                slots[_END_AT] = str(actual[0].shape[place])
        return tuple(slots)


def _divides(size: Shape, shape: Shape) -> bool:
    known = prod(n for n in size if n != _REST)
    return known > 0 and prod(shape) % known == 0


def _numbers(slot: Slot) -> Shape | None:
    """A list of whole numbers, as a trace writes it."""
    if not isinstance(slot, str) or not slot.startswith("["):
        return None
    result = json.loads(slot)
    return tuple(result) if all(type(n) is int for n in result) else None


def _strides(strides: Shape, old: Shape, new: Shape) -> Shape:
    """Strides that step over the dimension that changed grow with it."""
    at = next((place for place, (a, b) in enumerate(zip(old, new, strict=True)) if a != b), None)
    if at is None or len(strides) != len(old):
        return strides
    return tuple(s // old[at] * new[at] if s > strides[at] and s % old[at] == 0 else s for s in strides)
