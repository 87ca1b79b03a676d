"""Ops that work row by row: softmax, layer norm, reductions, look-ups. Each row costs beside its elements.

A row is finished by adding up a vector register and by scalar arithmetic, whatever its length: 30 to 120 ns, which is
most of the time of short rows (classes of a classifier, pixels of a small image).
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from operator import mul

from gnnperf.analytic.cpu.call import (
    CACHE_BYTES,
    ITEM_BYTES,
    Call,
    Counts,
    Shape,
    beyond,
    first_shape,
    is_shape,
    leading,
    streamed,
)

# No pass over rows: they compare, move and count, at prices of their own.
SELECTIONS = ("sort", "argsort", "topk", "nonzero", "index", "bincount", "kthvalue", "mode")
TABLE_SHARPNESS = 2.0  # look-ups leave the cache little by little
SUM_PASSES = 3.0  # of a sparse gradient added to a table: two reads, one write


def softmax(call: Call) -> Counts:
    """Along the last dimension, as a rule."""
    shape = first_shape(call)
    return {**streamed(call), "row": leading(shape)} if shape else streamed(call)


def norm(call: Call) -> Counts:
    """Layer norm has statistics per row; batch and group norm few, over long stretches."""
    shape = first_shape(call)
    return {**streamed(call), "row": leading(shape)} if shape and "layer" in call.op else streamed(call)


def reduction(call: Call) -> Counts:
    """Sums and the like: rows where the last dimensions are reduced, else vectors are added to vectors."""
    if call.op in SELECTIONS:
        return {"call": 1.0, "element": call.moved_bytes / ITEM_BYTES}
    shape = call.dims[0] if call.dims else []
    return {**streamed(call), "row": _reduced_rows(call, shape)} if is_shape(shape) else streamed(call)


def _reduced_rows(call: Call, shape: Shape) -> float:
    """The results, if there are as many as leading dimensions have elements; which axes went is not recorded."""
    kept = round(call.moved_bytes / ITEM_BYTES) - prod(shape)
    if kept <= 1:
        return 1.0
    return float(kept) if kept in accumulate(shape[:-1], mul) else 0.0


def lookup(call: Call) -> Counts:
    """Rows of tables that look-ups gather, or that sparse gradients are added to."""
    table = call.dims[0] if call.dims else []
    if not table or not table[-1]:
        return streamed(call)
    if call.op == "add_":
        rows, passes = call.flops / 2.0 / table[-1], SUM_PASSES
    elif call.op in ("embedding", "embedding_bag") and len(call.dims) > 1 and call.dims[1] is not None:
        rows, passes = float(prod(call.dims[1])), 1.0
    else:
        return streamed(call)
    elements = rows * table[-1]
    missed = beyond(prod(table) * ITEM_BYTES, CACHE_BYTES, TABLE_SHARPNESS) * rows
    written = max(call.moved_bytes - ITEM_BYTES * passes * elements, 0.0)
    return {"call": 1.0, "row": rows, "missed_row": missed, "element": passes * elements, "byte": written}
