"""What an op asks for while it runs: the allocations that a trace shows inside of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from math import prod

from gnnperf.graph import DTYPE_BYTES
from gnnperf.memory.slots import Slot, TensorSlot

_DTYPE_AT = {"aten::empty": 1, "aten::empty_strided": 2}
# Bytes of an element by c10::ScalarType, as traces write a dtype argument.
_ITEM_BYTES = {"0": 1, "1": 1, "2": 2, "3": 4, "4": 8, "5": 2, "6": 4, "7": 8, "8": 4, "9": 8, "10": 16, "11": 1,
               "15": 2}  # fmt: skip


def asked_bytes(inside: Iterable[tuple[str, tuple[Slot, ...]]]) -> int:
    """Bytes of all tensors made or grown by the ops inside of one.

    [("aten::empty", ("[8, 4]", "6", ...))] asks for 8 x 4 float32, 128 bytes.
    """
    return sum(_asked(name, slots) for name, slots in inside)


def _asked(name: str, slots: tuple[Slot, ...]) -> int:
    if name in _DTYPE_AT and len(slots) > _DTYPE_AT[name]:
        return _elements(slots[0]) * _ITEM_BYTES.get(str(slots[_DTYPE_AT[name]]), 4)
    if name == "aten::resize_" and len(slots) > 1 and isinstance(slots[0], TensorSlot):
        return max(_elements(slots[1]) * DTYPE_BYTES[slots[0].dtype] - slots[0].num_bytes, 0)
    return 0


def _elements(size: Slot) -> int:
    return prod(ast.literal_eval(size)) if isinstance(size, str) and size.startswith("[") else 0
