"""Rows of tables that look-ups gather, and that sparse gradients are added to."""

from __future__ import annotations

from math import prod

from gnnperf.analytic.cpu_ops.call import CACHE_BYTES, ITEM_BYTES, Call, Counts, beyond, streamed

TABLE_SHARPNESS = 2.0  # look-ups leave the cache little by little
SUM_PASSES = 3.0  # of a sparse gradient added to a table: two reads, one write


def lookup(call: Call) -> Counts:
    """Rows gathered, or added to."""
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
