"""Columns of an op table for products whose weight is sparse: density and block.

{"op": "aten::linear", "shapes": [[64, 4096], [4096, 4096], null], "dtype": "bfloat16", "density": 0.1, "block": 64}

Shapes are those of the dense matrices, as torch tells them of a sparse tensor. `density` is the share of the values
that is stored; in blocks of `block` x `block` (BSR), or without it one by one (CSR). 2:4 has ops of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.core import InputError
from gnnperf.graph import index_bytes, thinned

SPARSE_AT: Mapping[str, int] = {"aten::mm": 0, "aten::addmm": 1, "aten::linear": 1}  # place of the sparse operand
COLUMNS = ("density", "block")


@dataclass(frozen=True)
class Sparsity:
    """How the sparse operand [rows, columns] is stored.

    Attributes:
        rows: of the dense matrix.
        columns: of the dense matrix.
        density: share of its values that is stored.
        block: edge of the blocks; 1: value by value.
    """

    rows: int
    columns: int
    density: float
    block: int = 1

    def stored(self, dense: KernelCall) -> KernelCall:
        """The call, with the cost of what is stored."""
        elements = float(self.rows * self.columns)
        retained = self.density * elements
        where = index_bytes(retained / self.block**2, self.rows / self.block)
        flops, moved = thinned(dense.flops, dense.moved_bytes, elements, retained, dense.item_bytes, where)
        return replace(dense, flops=flops, moved_bytes=moved)


def read_sparsity(
    entry: Mapping[Any, Any], op: str, shapes: tuple[tuple[int, ...] | None, ...], where: str
) -> Sparsity | None:
    """Of one row; None where it has neither column.

    Raises:
        InputError: another op, a density out of range, a block that does not divide the operand, or one by itself.
    """
    density, block = (entry.get(name) for name in COLUMNS)
    if density is None and block is None:
        return None
    if op not in SPARSE_AT:
        raise InputError(f"{'density' if density is not None else 'block'} of {op}", where=where,
                         allowed=", ".join(SPARSE_AT), remedy="2:4 has ops of its own: aten::_cslt_sparse_mm, "
                         "aten::_sparse_semi_structured_linear, _mm and _addmm, without these columns")  # fmt: skip
    if not _is_number(density) or not 0 < density < 1:  # type: ignore[operator]  # a number, as just seen
        raise InputError(f"density is {density!r}", where=where, allowed="above 0, below 1: the share that is stored")
    shape = shapes[SPARSE_AT[op]] if SPARSE_AT[op] < len(shapes) else None
    if shape is None or len(shape) != 2 or not prod(shape):
        raise InputError(f"a sparse operand of shape {shape!r}", where=where, allowed="[rows, columns]",
                         remedy=f"the sparse operand of {op} is number {SPARSE_AT[op] + 1}")  # fmt: skip
    return Sparsity(*shape, float(density), _block(block, shape, where))  # type: ignore[arg-type]


def _block(result: object, shape: tuple[int, ...], where: str) -> int:
    if result is None:
        return 1
    if not _is_number(result) or result < 1 or any(edge % result for edge in shape):  # type: ignore[operator]
        raise InputError(f"block is {result!r}", where=where,
                         allowed=f"an edge that divides {shape[0]} and {shape[1]}")  # fmt: skip
    return int(result)  # type: ignore[call-overload,no-any-return]


def _is_number(result: object) -> bool:
    return isinstance(result, (int, float)) and not isinstance(result, bool)
