"""Adding a sparse gradient to a dense parameter: its cost is that of the rows that are there.

The recorded shapes are those of dense tensors. What the op does inside says that one of them is sparse, and how many
rows it holds (ATen's add_dense_sparse: SparseTensorMath.cpp):

    aten::add_ [[400000, 32], [400000, 32], []]
      aten::add
        aten::_nnz                          only sparse tensors are requested
        aten::to [[4096, 32], ...]          their values: 4096 rows
"""

from __future__ import annotations

import json
from math import prod

import numpy as np

from gnnperf.core import EventKind
from gnnperf.graph.cost.op_call import DTYPE_BYTES
from gnnperf.graph.event_columns import RankEvents

COUNT_OP, VALUES_OP = "aten::_nnz", "aten::to"
IN_PLACE = "aten::add_"  # others write a whole new tensor
SUMS = (IN_PLACE, "aten::add", "aten::add.out")
INDEX_BYTES = 8


def sparse_sums(events: RankEvents, inside: np.ndarray) -> dict[int, int]:
    """Event id of a sum with a sparse operand -> elements of its values.

    Args:
        events: one rank.
        inside: [n] event ids to look among.
    """
    result: dict[int, int] = {}
    for count in inside[events.name[inside] == COUNT_OP].tolist():
        sums = _sums_around(events, count)
        if sums and sums[0] not in result and events.name[sums[-1]] == IN_PLACE:
            elements = _value_elements(events, inside, sums[0])
            result.update(dict.fromkeys(sums, elements) if elements else {})
    return result


def sparse_sum_cost(elements: int, dtype: str | None) -> tuple[float, float]:
    """FLOPs and bytes: a multiply-add per value; value and parameter read, parameter written, one index per value row.

    Indices are counted as if rows were 32 values long: they are little next to the rows.
    """
    item_bytes = DTYPE_BYTES[dtype or "float32"]
    return 2.0 * elements, elements * (3.0 * item_bytes + INDEX_BYTES / 32)


def _sums_around(events: RankEvents, event: int) -> list[int]:
    """The sums that enclose an event, innermost first."""
    result, current = [], int(events.parent[event])
    while current >= 0 and events.kind[current] == EventKind.CPU_OP and events.name[current] in SUMS:
        result.append(current)
        current = int(events.parent[current])
    return result


def _value_elements(events: RankEvents, inside: np.ndarray, around: int) -> int:
    """Elements of the values that the innermost sum reads; 0 not recorded."""
    children = inside[(events.parent[inside] == around) & (events.name[inside] == VALUES_OP)]
    dims = events.table.events["input_dims"].iloc[children].dropna()
    shapes = [json.loads(text) for text in dims.astype(str)]
    return max((prod(shape[0]) for shape in shapes if shape and isinstance(shape[0], list) and shape[0]), default=0)
