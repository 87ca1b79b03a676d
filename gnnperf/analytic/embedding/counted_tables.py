"""Which counts of a run's card belong to a lookup: those of tables of its size, or of which it holds a part.

A rank may hold a part of the rows (row-wise) or of the columns (column-wise) of a table. A part of the rows has the
rates of the whole: its rows are spread over the ranks, each bin of rates alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from gnnperf.analytic.embedding.calls import sizes_of
from gnnperf.analytic.embedding.counted_access import counted_access
from gnnperf.analytic.embedding.model import Access
from gnnperf.analytic.kernels.call import KernelCall, LookupAccess
from gnnperf.core import OpFamily
from gnnperf.graph import TableCounts, UnknownCost


def with_counts(calls: Sequence[KernelCall], counts: Sequence[TableCounts]) -> list[KernelCall]:
    """The calls; lookups in tables that were counted know how."""
    return [_with_counts(call, counts) if counts and call.family == OpFamily.EMBEDDING else call for call in calls]


def _with_counts(call: KernelCall, counts: Sequence[TableCounts]) -> KernelCall:
    try:
        rows, dim = (round(size) for size in sizes_of(call)[:2])
    except (UnknownCost, IndexError):  # shapes that were not recorded: the form does not answer either
        return call
    result = [table for table in counts if _holds(table, rows, dim)]
    if not result:
        return call
    table = min(result, key=lambda t: (t.rows * t.dim, t.lookups))  # the whole table rather than a part of a larger one
    return replace(call, access=LookupAccess(_access(table, rows)))


def _holds(table: TableCounts, rows: int, dim: int) -> bool:
    """Whether [rows, dim] is the table, or what one of several ranks has of it."""
    parts = max(round(table.rows / rows), 1)
    return -(-table.rows // parts) == rows and table.dim % dim == 0


@cache
def _access(table: TableCounts, rows: int) -> Access:
    histogram = np.array(table.reuse_histogram, float) / table.batches  # [bins]
    whole = counted_access(float(table.rows), histogram, float(table.lookups))
    share = rows / table.rows
    return Access(whole.rows * share, whole.probability / share)
