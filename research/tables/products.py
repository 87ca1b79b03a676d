"""Columns of matrix products, whatever table they stand in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from research.tables.columns import ITEM_BYTES
from research.tables.shapes import dtypes_json, shapes_json

BACKWARD_PRODUCTS = 2  # gradients of both operands


def product_columns(
    op: str,
    m: npt.ArrayLike,
    n: npt.ArrayLike,
    k: npt.ArrayLike,
    dtype: str,
    batch: npt.ArrayLike = 1,
    num_products: int = 1,
) -> dict[str, object]:
    """Columns of [batch] x [m, k] x [k, n].

    FLOPs: 2 batch m n k; bytes: each operand once, the result once (Williams, Waterman, Patterson 2009: compulsory
    traffic). A backward call is two products of the same volume, and moves what both move.

    Args:
        op: aten::mm and aten::addmm: [m, k], [k, n]; aten::linear: [m, k], [n, k]; aten::bmm: batched.
        m: [rows] rows of the result; n, k, batch likewise.
        n: columns of the result.
        k: summed length.
        dtype: of operands and result.
        batch: products in one call.
        num_products: 2 for a backward call.
    """  # fmt: skip
    sizes = [np.asarray(size, float) for size in (batch, m, n, k)]
    b, rows, columns, depth = np.broadcast_arrays(*sizes)  # [rows]
    left, right = [rows, depth], [columns, depth] if op == "aten::linear" else [depth, columns]
    if op in ("aten::bmm", "aten::baddbmm"):
        left, right = [b, *left], [b, *right]
    moved = b * (rows * depth + depth * columns + rows * columns) * ITEM_BYTES[dtype]
    return {
        "op": op, "batch": b, "m": rows, "n": columns, "k": depth, "dtype": dtype,
        "shapes": shapes_json([left, right]), "dtypes": dtypes_json([dtype, dtype]),
        "flops": 2.0 * b * rows * columns * depth * num_products, "moved_bytes": moved * num_products,
    }  # fmt: skip
