"""Which memory a recorded shape means: traces name no tensors, so the likeliest one of that shape is taken.

A tensor that an op returns, or a view of it, is a *name* for a storage: shape and dtype. Who takes such a shape gets,
first of all, the newest name that nothing has taken yet: what is made is made for somebody. Only then older ones.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from math import prod

from gnnperf.graph import DTYPE_BYTES, UnknownCost, parse_call

# The arguments of a recorded op call, as values that can be looked up: tensors, lists of tensors, texts.


@dataclass(frozen=True)
class TensorSlot:
    """A tensor argument."""

    shape: tuple[int, ...]  # [dims]
    dtype: str  # torch's name of it; "" where the trace records none (lists of tensors)
    requires_grad: bool = False  # whether autograd follows it

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
    return tuple(
        TensorSlot(tensor.shape, tensor.dtype) if tensor is not None
        else tuple(TensorSlot(t.shape, "") for t in tensors) if tensors is not None else call.text(place)
        for place, (tensor, tensors) in enumerate(zip(call.tensors, call.lists, strict=True))
    )  # fmt: skip


def tensors_of(slots: tuple[Slot, ...]) -> list[TensorSlot]:
    """All tensors in order, those of lists in their place."""
    result: list[TensorSlot] = []
    for slot in slots:
        result += [slot] if isinstance(slot, TensorSlot) else list(slot) if isinstance(slot, tuple) else []
    return result


def with_tensors(slots: tuple[Slot, ...], tensors: list[TensorSlot]) -> tuple[Slot, ...]:
    """The same arguments with other tensors in their places."""
    rest = iter(tensors)
    return tuple(
        next(rest) if isinstance(slot, TensorSlot)
        else tuple(next(rest) for _ in slot) if isinstance(slot, tuple) else slot
        for slot in slots
    )  # fmt: skip


Shape = tuple[int, ...]
_LOOK_BACK = 400  # names of one shape that are looked at
_PIECES = ("aten::as_strided", "aten::select", "aten::slice")


class Role(StrEnum):
    """What a storage is to the program."""

    PARAMETER = "parameter"
    OUTSIDE = "outside"  # there before the step: data, buffers
    ACTIVATION = "activation"
    GRADIENT = "gradient"  # of a parameter, until the next step sets it to none
    SPARSE = "sparse"  # rows of a gradient: a part of a sparse tensor


@dataclass
class Storage:
    """Memory, and from when to when it is held."""

    number: int  # of all, in order
    num_bytes: int  # requested
    role: Role  # what for
    requires_grad: bool  # whether autograd follows what is in it
    from_ns: int  # when it was made
    to_ns: int  # end of the last use that is known
    made_by: str  # op
    is_over: bool = False  # whether no one can take it any more


@dataclass
class Name:
    """A shape under which a storage may be taken."""

    storage: Storage  # which
    dtype: str  # as recorded
    # the tensor behind it: another one than recorded where the step is a variant of the recorded one
    actual: TensorSlot
    in_backward: bool  # it was given there
    taken_by: int = -1  # event of the last call; -1 none yet


@dataclass
class Storages:
    """All storages of a step and their names."""

    in_backward: bool = False  # whether a node of the backward runs now
    all: list[Storage] = field(default_factory=list)  # in the order in which they were made
    _names: dict[Shape, list[Name]] = field(default_factory=dict)
    _last: tuple[str, Shape, Name | None] = ("", (), None)

    def make(self, num_bytes: int, role: Role, at_ns: tuple[int, int], made_by: str, *, requires_grad: bool) -> Storage:
        """New memory, without a name."""
        made = Storage(len(self.all), num_bytes, role, requires_grad, *at_ns, made_by)
        self.all.append(made)
        return made

    def name(
        self, storage: Storage, shape: Shape, dtype: str, times: int = 1, *, actual: TensorSlot | None = None
    ) -> Name:
        """Somebody, or so many, may take it under this shape; `actual` None: it is the shape itself."""
        result = TensorSlot(shape, dtype) if actual is None else actual
        made = [Name(storage, dtype, result, self.in_backward) for _ in range(times)]
        self._names.setdefault(shape, []).extend(made)
        return made[-1]

    def take(
        self,
        shape: Shape,
        dtype: str,  # as recorded; "" unknown
        likely: Collection[int] = (),  # numbers of storages that are likelier than any other
        *,
        call: int = -1,  # event that takes it: its arguments are different tensors, if there are as many
        role: Role | None = None,  # of the storage; None any
        op: str = "",  # that takes it: pieces are taken of one tensor, one after the other
    ) -> Name | None:
        """The storage that this shape means, by name; None: none has this name."""
        if op in _PIECES and self._last[:2] == (op, shape) and self._last[2] is not None:
            return self._last[2]
        known = [n for n in reversed(self._names.get(shape, [])[-_LOOK_BACK:]) if dtype in ("", n.dtype)]
        known = [n for n in known if role in (None, n.storage.role) and not n.storage.is_over]
        others = [n for n in known if n.taken_by != call] or known
        best = next((n for n in others if n.storage.number in likely), None)
        # That no one took yet, of the same half of the step: what is left over in the other one is for no one.
        waiting = (n for n in others if n.taken_by < 0 and n.in_backward == self.in_backward)
        best = best or next(waiting, None) or next(iter(others), None)
        if best is not None:
            best.taken_by = call
        self._last = (op, shape, best)
        return best
