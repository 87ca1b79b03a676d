"""Cost of the ops behind nodes, from the formulas of graph.cost.

A kernel belongs to the innermost op that launched it: its cost is that op's, else that of the nearest op around it that
has a formula. On a CPU device the outermost op is the node: its cost is its own formula, else the sum over its children
(a lower bound where a child has none).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from math import isnan, prod

import numpy as np

from gnnperf.core import OpFamily, schema
from gnnperf.graph.cost import op_cost, op_family
from gnnperf.graph.cost.op_call import DTYPE_BYTES
from gnnperf.graph.event_columns import RankEvents, by_category
from gnnperf.graph.tables import combined, text

# Adding a sparse gradient to a dense parameter: its cost is that of the rows that are there.
#
# The recorded shapes are those of dense tensors. Events inside the op show that one of them is sparse, and how many
# rows it holds (ATen's add_dense_sparse: SparseTensorMath.cpp):
#
#     aten::add_ [[400000, 32], [400000, 32], []]
#       aten::add
#         aten::_nnz                          only sparse tensors are requested
#         aten::to [[4096, 32], ...]          their values: 4096 rows

COUNT_OP, ROWS_OP = "aten::_nnz", "aten::to"
IN_PLACE = "aten::add_"  # others write a whole new tensor
SUMS = (IN_PLACE, "aten::add", "aten::add.out")
INDEX_BYTES = 8


def sparse_sums(events: RankEvents, inside: np.ndarray) -> dict[int, int]:
    """Event id of a sum with a sparse operand, among `inside` [n] -> elements of its values."""
    result: dict[int, int] = {}
    names, dims = events.table.events["name"], events.table.events["input_dims"]
    counts = inside[by_category(names, COUNT_OP.__eq__, bool)[inside]].tolist()
    rows = inside[by_category(names, ROWS_OP.__eq__, bool)[inside]] if counts else inside[:0]
    first_shapes = [json.loads(text)[:1] for text in schema.categories_of(dims)] if counts else []
    for count in counts:
        sums = list(takewhile(lambda op: events.name[op] in SUMS, _ops_around(events, count)))
        if sums and sums[0] not in result and events.name[sums[-1]] == IN_PLACE:
            # Of the values that the innermost sum reads; 0 not recorded.
            codes = schema.codes_of(dims)[rows[events.parent[rows] == sums[0]]]
            shapes = [shape for code in codes[codes >= 0].tolist() for shape in first_shapes[code]]
            elements = max((prod(shape) for shape in shapes if shape and isinstance(shape, list)), default=0)
            result.update(dict.fromkeys(sums, elements) if elements else {})
    return result


def sparse_sum_cost(elements: int, dtype: str | None) -> tuple[float, float]:
    """FLOPs and bytes: a multiply-add per value; value and parameter read, parameter written, one index per value row.

    Indices are counted as if rows were 32 values long: they are little next to the rows.
    """
    item_bytes = DTYPE_BYTES[dtype or "float32"]
    return 2.0 * elements, elements * (3.0 * item_bytes + INDEX_BYTES / 32)


def _ops_around(events: RankEvents, event: int) -> Iterator[int]:
    """The ops that enclose an event, innermost first."""
    current = int(events.parent[event])
    while current >= 0 and events.is_op[current]:
        yield current
        current = int(events.parent[current])


_MAX_CLIMB = 8
_CALL = ("name", "input_dims", "input_types", "input_values")  # columns of an event that its cost depends on


@dataclass(frozen=True)
class OpCosts:
    """All [n]; NaN, "unknown" and None where nothing is known."""

    event: np.ndarray  # event id of the op whose formula was used; -1 none
    flops: np.ndarray  # of the whole op call
    bytes: np.ndarray  # of the whole op call
    family: np.ndarray  # OpFamily, str objects
    dtype: np.ndarray  # str objects or None


def launching_op_costs(events: RankEvents, op: np.ndarray) -> OpCosts:
    """Cost of the op behind each kernel [n] (event id or -1); ops without a formula ask the op around them.

    A view or a wrapper (aten::to, aten::reshape) touches no memory by itself. A kernel inside one did work, so the zero
    of the view is not its cost, and nothing outside of the view is.
    """
    result = _unknown(len(op))
    current, open_ = op.copy(), op >= 0
    is_view = by_category(events.table.events["name"], lambda name: op_family(name) is OpFamily.VIEW, bool)
    for _ in range(_MAX_CLIMB):
        open_[open_] = ~is_view[current[open_]]
        if not open_.any():
            break
        _fill(events, result, np.flatnonzero(open_), current)
        current = np.where(current >= 0, events.parent[current], -1)
        open_ &= (result.event < 0) & (current >= 0)
        open_[open_] = events.is_op[current[open_]]
    return result


def whole_op_costs(events: RankEvents, op: np.ndarray) -> OpCosts:
    """Cost of each outermost op [n] (event id or -1) with all its children; views and unknown ops ask their children.

    The family and dtype are those of the child that moves most bytes.
    """
    inside = np.flatnonzero(events.is_op & np.isin(events.op, op[op >= 0]))
    own = _unknown(len(inside))
    _fill(events, own, np.arange(len(inside)), inside)
    for event, elements in sparse_sums(events, inside).items():  # they touch the rows of their sparse operand only
        row = int(np.searchsorted(inside, event))
        own.flops[row], own.bytes[row] = sparse_sum_cost(elements, own.dtype[row])
        own.family[row] = str(OpFamily.EMBEDDING)
    works = ~np.isin(own.family, [str(OpFamily.VIEW), str(OpFamily.UNKNOWN)]) & (own.event >= 0)
    row_of = np.full(len(events.start_ns), -1, dtype=np.int64)
    row_of[inside] = np.arange(len(inside))
    parent = np.where(events.parent[inside] >= 0, row_of[events.parent[inside]], -1)
    flops, moved, main = _sum_up(parent, works, own.flops, own.bytes)
    result = _unknown(len(op))
    requested = np.flatnonzero(op >= 0)
    rows = row_of[op[requested]]
    main = np.where(main >= 0, main, np.arange(len(main)))  # nothing known: the op's own family
    result.family[requested], result.dtype[requested] = own.family[main[rows]], own.dtype[main[rows]]
    known = works[main[rows]]
    result.flops[requested[known]], result.bytes[requested[known]] = flops[rows[known]], moved[rows[known]]
    result.event[requested[known]] = inside[main[rows[known]]]
    return result


def _unknown(n: int) -> OpCosts:
    return OpCosts(
        np.full(n, -1), np.full(n, np.nan), np.full(n, np.nan),
        np.full(n, text(OpFamily.UNKNOWN), dtype=object), np.full(n, None, dtype=object),
    )  # fmt: skip


def _sum_up(
    parent: np.ndarray, works: np.ndarray, flops: np.ndarray, moved: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[n] FLOPs, bytes with children, and the row that moves most of them (-1: nothing known), bottom up.

    A row that works counts for itself and hides its children. Rows come after their parents.
    """
    n = len(parent)
    totals = [np.where(works, values, np.nan).tolist() for values in (flops, moved)]  # NaN: nothing known yet
    most = np.nan_to_num(np.where(works, moved, 0.0)).tolist()
    main = np.where(works, np.arange(n), -1).tolist()
    hides, above_of = works.tolist(), parent.tolist()
    for row in range(n - 1, -1, -1):
        above = above_of[row]
        if above < 0 or main[row] < 0 or hides[above]:
            continue
        for total in totals:
            known = [amount for amount in (total[above], total[row]) if not isnan(amount)]
            total[above] = sum(known) if known else float("nan")
        if main[above] < 0 or most[row] > most[above]:
            main[above], most[above] = main[row], most[row]
    return np.array(totals[0]), np.array(totals[1]), np.array(main, dtype=np.int64)


def _fill(events: RankEvents, result: OpCosts, rows: np.ndarray, current: np.ndarray) -> None:
    """Evaluate each distinct (name, shapes, types, values) once and spread the result over its rows."""
    if not len(rows):
        return
    at = current[rows]
    call = combined([schema.codes_of(events.table.events[column])[at] for column in _CALL])
    _, first, inverse = np.unique(call, return_index=True, return_inverse=True)
    distinct = (events.column(column, at[first]).tolist() for column in _CALL)
    costs = [op_cost(*row) for row in zip(*distinct, strict=True)]
    flops = np.array([a.flops for a in costs])[inverse]
    known = ~(np.isnan(flops) & np.isnan(np.array([a.bytes for a in costs])[inverse]))
    named = np.array([a.family != OpFamily.UNKNOWN for a in costs])[inverse]
    take = known | (named & (result.family[rows] == OpFamily.UNKNOWN))
    result.flops[rows[take]] = flops[take]
    result.bytes[rows[take]] = np.array([a.bytes for a in costs])[inverse][take]
    result.family[rows[take]] = np.array([str(a.family) for a in costs], dtype=object)[inverse][take]
    result.dtype[rows[take]] = np.array([a.dtype for a in costs], dtype=object)[inverse][take]
    result.event[rows[known]] = at[known]
