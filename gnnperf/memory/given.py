"""What torch shows of a call: its effect as recorded, its effect in a variant of the step, what it holds meanwhile."""

import ast
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

from gnnperf.graph import DTYPE_BYTES
from gnnperf.memory.effects import CannotTell, Effect, effect_of
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import Slot, TensorSlot, with_tensors

# What ops of a step would be called with, had the program been another one: the step goes by again, without data.
#
# A variant states what tensors are that no one in the step makes, and how numbers among the arguments go with tensors.
# All other shapes follow: torch is requested what an op returns for the tensors that it is given then.


@dataclass(frozen=True)
class Variant:
    """A known change of the program: as recorded, unless a subclass overrides it."""

    inner: "Variant | None" = None  # another change that is made first; None: there is none

    def source(self, recorded: TensorSlot) -> TensorSlot:
        """What a tensor is that was there before the step, and is no parameter."""
        return recorded if self.inner is None else self.inner.source(recorded)

    def parameter(self, recorded: TensorSlot) -> TensorSlot:
        """What a parameter is, its gradient and its state."""
        return recorded if self.inner is None else self.inner.parameter(recorded)

    def casts(self, call: Call, actual: Sequence[TensorSlot]) -> tuple[str, ...]:
        """The dtype of the copy that the call is given of each tensor; "" the tensor itself."""
        return ("",) * len(actual)

    def arguments(self, call: Call, recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot]) -> tuple[Slot, ...]:
        """The call's arguments, given its tensors as recorded and as they are."""
        if self.inner is not None:
            return self.inner.arguments(call, recorded, actual)
        return with_tensors(call.slots, list(actual))

    def guess(self, call: Call, recorded: Sequence[TensorSlot]) -> Sequence[TensorSlot]:
        """The call's tensors by their recorded shapes only, where those that were followed do not go together."""
        return recorded if self.inner is None else self.inner.guess(call, recorded)


# What oneDNN holds while a convolution runs on a CPU: copies of tensors in its own layout, which no trace shows.
#
# Channels come in blocks of 16 (nChw16c, oneDNN's layout where a vector register holds 16 float32): 8 channels take as
# much as 16. Inputs of few channels are read as they are. The rules are read off the allocations of
# convolutions run in isolation, in this order:
#
#     forward    copy of input, result in blocks | result in blocks, result
#     backward   copy of gradient, input's gradient in oneDNN's layout | that, the input's gradient, what is requested |
#                the input's gradient, copy of gradient, copy of input

_BLOCK = 16  # channels
_FEW = 4  # channels that are read as they are
_FORWARD, _BACKWARD = "aten::convolution", "aten::convolution_backward"
_USES_ONEDNN = "aten::mkldnn_convolution"


def workspace_bytes(call: Call, requested_bytes: int) -> int:
    """Bytes on top of the results; 0 for other ops, and for convolutions that something else computes."""
    slots = [slot for slot in call.slots[:3] if isinstance(slot, TensorSlot) and len(slot.shape) == 4]
    if call.name == _FORWARD and len(slots) == 2 and any(name == _USES_ONEDNN for name, _ in call.inside):
        return blocked_bytes(slots[0])
    if call.name == _BACKWARD and len(slots) == 3:
        gradient, data, _ = slots
        return max(blocked_bytes(gradient) + blocked_bytes(data), data.num_bytes + requested_bytes)
    return 0


def blocked_bytes(tensor: TensorSlot) -> int:
    """Bytes of a tensor [N, C, H, W] in blocks of channels; 0 where it is read as it is."""
    samples, channels, *rest = tensor.shape
    if channels < _FEW:
        return 0
    whole = -(-channels // _BLOCK) * _BLOCK
    return TensorSlot((samples, whole, *rest), tensor.dtype).num_bytes


# What an op allocates while it runs: the allocations that a trace shows inside of it.

_DTYPE_AT = {"aten::empty": 1, "aten::empty_strided": 2}
# Bytes of an element by c10::ScalarType, as traces write a dtype argument.
_ITEM_BYTES = {"0": 1, "1": 1, "2": 2, "3": 4, "4": 8, "5": 2, "6": 4, "7": 8, "8": 4, "9": 8, "10": 16, "11": 1,
               "15": 2}  # fmt: skip


def requested_bytes(inside: Iterable[tuple[str, tuple[Slot, ...]]]) -> int:
    """Bytes of all tensors made or grown by the ops inside of one.

    [("aten::empty", ("[8, 4]", "6", ...))] allocates 8 x 4 float32, 128 bytes.
    """
    result = 0
    for name, slots in inside:
        if name in _DTYPE_AT and len(slots) > _DTYPE_AT[name]:
            result += _elements(slots[0]) * _ITEM_BYTES.get(str(slots[_DTYPE_AT[name]]), 4)
        elif name == "aten::resize_" and len(slots) > 1 and isinstance(slots[0], TensorSlot):
            result += max(_elements(slots[1]) * DTYPE_BYTES[slots[0].dtype] - slots[0].num_bytes, 0)
    return result


def _elements(size: Slot) -> int:
    return prod(ast.literal_eval(size)) if isinstance(size, str) and size.startswith("[") else 0


def given(name: str, slots: tuple[Slot, ...], tensors: list[TensorSlot]) -> Effect | None:
    """None: unknown. Where autograd cannot follow all tensors, the trace meant others: it follows the first."""
    isolated = [replace(t, requires_grad=t.requires_grad and i == 0) for i, t in enumerate(tensors)]
    for tried in (tensors, isolated):
        with suppress(CannotTell):
            return effect_of(name, with_tensors(slots, tried))
    return None


def given_in(
    variant: "Variant", call: Call, effect: Effect, recorded: list[TensorSlot], actual: list[TensorSlot],
    followed: Sequence[bool],
) -> Effect | None:  # fmt: skip
    """The effect for the tensors as they are: what the step made is known, of all else the place may say more.

    A tensor that is taken for a parameter, or for data of that shape, may be the other one.
    """
    guess = list(variant.guess(call, recorded))
    mixed = [a if known else g for a, g, known in zip(actual, guess, followed, strict=True)]
    for tensors in (mixed, actual, guess):
        slots = variant.arguments(call, recorded, tensors)
        if slots == with_tensors(call.slots, recorded):
            return effect
        result = given(call.name, slots, tensors)
        if result is not None and len(result.results) == len(effect.results):
            return result
    return None


def inside_bytes(
    call: Call, effect: Effect, recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot], *, on_gpu: bool
) -> int:
    """What an op allocates inside and does not return; it grows as the tensors that the op takes do."""
    new = sum(r.num_bytes for r in effect.results if r.of_input is None and r.of_result is None)
    requested = max(requested_bytes(call.inside) - new, 0)
    before, now = (sum(t.num_bytes for t in tensors) for tensors in (recorded, actual))
    more = requested if before == now else requested * now // max(before, 1)
    if on_gpu:
        return more
    return max(more, workspace_bytes(replace(call, slots=with_tensors(call.slots, list(actual))), more))
