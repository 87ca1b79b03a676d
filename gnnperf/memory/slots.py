"""The arguments of a recorded op call, as values that can be looked up: tensors, lists of tensors, texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from gnnperf.graph import DTYPE_BYTES, OpCall, UnknownCost, parse_call


@dataclass(frozen=True)
class TensorSlot:
    """A tensor argument.

    Attributes:
        shape: [dims].
        dtype: torch's name of it; "" where the trace records none (lists of tensors).
        requires_grad: whether autograd follows it.
    """

    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes of all elements, next to each other; float32 where no dtype was recorded."""
        return prod(self.shape) * DTYPE_BYTES.get(self.dtype, 4)


Slot = TensorSlot | tuple[TensorSlot, ...] | str  # str: a scalar, as the trace writes it; "" for None and unknown


@lru_cache(maxsize=50_000)
def slots_of(name: str, dims: str | None, types: str | None, values: str | None) -> tuple[Slot, ...]:
    """The arguments of a call from the texts of schema.EVENT_COLUMNS; () where none were recorded."""
    try:
        call = parse_call(name, dims, types, values)
    except UnknownCost:
        return ()
    return tuple(_slot(call, place) for place in range(len(call.tensors)))


def _slot(call: OpCall, place: int) -> Slot:
    tensor, tensors = call.tensors[place], call.lists[place]
    if tensor is not None:
        return TensorSlot(tensor.shape, tensor.dtype)
    if tensors is not None:
        return tuple(TensorSlot(t.shape, "") for t in tensors)
    return call.text(place)


def tensors_of(slots: tuple[Slot, ...]) -> list[TensorSlot]:
    """All tensors in order, those of lists in their place."""
    found: list[TensorSlot] = []
    for slot in slots:
        found += [slot] if isinstance(slot, TensorSlot) else list(slot) if isinstance(slot, tuple) else []
    return found


def with_tensors(slots: tuple[Slot, ...], tensors: list[TensorSlot]) -> tuple[Slot, ...]:
    """The same arguments with other tensors in their places."""
    rest = iter(tensors)
    return tuple(
        next(rest) if isinstance(slot, TensorSlot)
        else tuple(next(rest) for _ in slot) if isinstance(slot, tuple) else slot
        for slot in slots
    )  # fmt: skip
