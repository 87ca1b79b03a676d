"""Edits of a graph -> the variant of the step whose memory is requested, and what no variant shows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

from gnnperf import whatif
from gnnperf.core import OpFamily, Phase
from gnnperf.generate import Argument, Shape
from gnnperf.graph import ExecutionGraph, lookup
from gnnperf.memory.given import Variant
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import Slot, TensorSlot, with_tensors
from gnnperf.whatif import Batch, ChangeDtype, Edit, ScaleBatch, find_batch, grown, op_of, scale_call

# The step in another dtype: by autocast (parameters stay, products take copies of them), or all of it.
#
# autocast   norm -> float32    copy of it, copy of the weight -> bfloat16    addmm -> bfloat16    loss: copy -> float32
#
# Which ops autocast casts for is in PyTorch's aten/src/ATen/autocast_mode.h; what follows, torch's own promotion shows.

PRODUCTS = (OpFamily.GEMM, OpFamily.CONV, OpFamily.ATTENTION)
# In float32 under autocast. What GPUs do so next to, CPUs compute as it comes.
FULL = ("_log_softmax", "nll_loss_forward", "mse_loss", "binary_cross_entropy_with_logits", "smooth_l1_loss")
FULL_ON_GPUS = ("_softmax", "native_layer_norm", "native_group_norm", "exp", "log", "pow", "sum", "cumsum", "norm")
FLOAT = "float32"


@dataclass(frozen=True, kw_only=True)
class Autocast(Variant):
    """Products in a lower dtype; data and parameters stay in theirs."""

    of: str
    to: str
    on_gpu: bool  # which of autocast's lists holds

    def casts(self, call: Call, actual: Sequence[TensorSlot]) -> tuple[str, ...]:
        """Forward ops only: the backward takes what was kept."""
        if call.node >= 0:
            return ("",) * len(actual)
        if lookup(call.name)[0] in PRODUCTS:
            return tuple(self.to if t.dtype == self.of else "" for t in actual)
        full = (*FULL, *FULL_ON_GPUS) if self.on_gpu else FULL
        return tuple(FLOAT if t.dtype == self.to and op_of(call.name) in full else "" for t in actual)


@dataclass(frozen=True, kw_only=True)
class AllCast(Variant):
    """Everything that has one dtype has another one: model.to(dtype)."""

    of: str
    to: str

    def source(self, recorded: TensorSlot) -> TensorSlot:
        """Data."""
        return self._cast(super().source(recorded))

    def parameter(self, recorded: TensorSlot) -> TensorSlot:
        """Parameters, and what is as large: gradients, optimizer state."""
        return self._cast(super().parameter(recorded))

    def guess(self, call: Call, recorded: Sequence[TensorSlot]) -> Sequence[TensorSlot]:
        """All of them."""
        return [self._cast(tensor) for tensor in super().guess(call, recorded)]

    def _cast(self, tensor: TensorSlot) -> TensorSlot:
        return replace(tensor, dtype=self.to) if (tensor.dtype or FLOAT) == self.of else tensor


MIXED = "mixed"  # of ChangeDtype's scopes: autocast
TIME_ONLY = (whatif.OpLatency, whatif.InputStall, whatif.Straggler, whatif.DeclarePause, whatif.Block,
             whatif.ChangeLink, whatif.ChangeCluster, whatif.ChangeDevice)  # fmt: skip
RESIZES = (whatif.ScaleSequence, whatif.ResizeTables)  # tensors, in a way that no variant has
SAME_OPS = "whether another batch makes the program keep other tensors: it is taken to make the same ones"


@dataclass(frozen=True)
class MemoryEdits:
    """What edits make of memory."""

    variant: Variant | None  # of the step; None: an edit resizes tensors in a way that no variant has
    left_out: tuple[Edit, ...]  # edits whose effect is unknown
    unknown: tuple[str, ...]  # sentences: what is assumed


def memory_edits(graph: ExecutionGraph, edits: Sequence[Edit], *, on_gpu: bool) -> MemoryEdits:
    """The variant of an unedited step with another batch or dtype; edits of time change nothing, others are left out.

    Raises:
        InputError: nothing shows which sizes are batch.
    """
    factor = prod(edit.factor for edit in edits if isinstance(edit, ScaleBatch))
    known = (*TIME_ONLY, ScaleBatch, ChangeDtype)
    left_out = tuple(edit for edit in edits if not isinstance(edit, known))
    if any(isinstance(edit, RESIZES) for edit in edits):
        return MemoryEdits(None, left_out, ())
    variant = Variant()
    if factor != 1.0:
        variant = ScaledBatch(batch=find_batch(graph), factor=factor)
    for edit in edits:
        if isinstance(edit, ChangeDtype) and edit.scope == MIXED:
            variant = Autocast(variant, of=edit.of, to=edit.to, on_gpu=on_gpu)
        elif isinstance(edit, ChangeDtype):
            variant = AllCast(variant, of=edit.of, to=edit.to)
    return MemoryEdits(variant, left_out, (SAME_OPS,) if factor != 1.0 else ())


# The step with another batch: data that the step reads grow, and what is made of them follows.
#
# recorded   data [8,64]    embedding -> [8,64,128]     view "[512, 128]"     addmm [512,128] x [128,384] ->
# [512,384] actual     data [16,64]   embedding -> [16,64,128]    view "[1024, 128]"    addmm [1024,128] x [128,384]
# -> [1024,384]
#
# Which sizes of data are batch is read off the graph (`gnnperf.whatif.batch_shapes`). Sizes that ops take as numbers
# are made to fit: a view has as many elements as its input. The ops are taken to stay, and be as many.


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


@dataclass(frozen=True, kw_only=True)
class ScaledBatch(Variant):
    """Every rank's batch is larger or smaller."""

    batch: Batch  # what is batch in the step
    factor: float  # new batch / old batch

    def source(self, recorded: TensorSlot) -> TensorSlot:
        """Data: its first dimension that has a size of the batch."""
        return replace(recorded, shape=self.batch.scaled(recorded.shape, self.factor))

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
            return next((f for f in fits if _divides(f, actual.shape)), size)
        order = sorted(range(len(size)), key=lambda place: size[place] not in self.batch.sizes)  # batch first
        scaled = (size, *(grown(size, place, self.factor) for place in order))
        return next((each for each in scaled if prod(each) == prod(actual.shape)), size)

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
