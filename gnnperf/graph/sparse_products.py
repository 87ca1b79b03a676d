"""Products with an operand in blocks (BSR) or single values (CSR): the cost is that of what is stored.

The recorded shapes are those of the dense matrices. What the op does inside says how much one of them stores
(SparseBlasImpl.cpp of ATen; torch/sparse/_triton_ops.py on CUDA asks in the same way):

    aten::addmm [[64, 32], [64, 128], [128, 32], ...]
      aten::values [[64, 128]]              the dense shape of the operand that is asked
        aten::alias [[16, 16, 16]]          16 blocks of 16 x 16; one axis: so many single values
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod

import numpy as np

from gnnperf.core import EventKind
from gnnperf.graph.cost.sparse_matmul import index_bytes
from gnnperf.graph.event_columns import RankEvents

VALUES_OP, STORED_OP = "aten::values", "aten::alias"
PRODUCTS = ("aten::mm", "aten::addmm", "aten::matmul", "aten::linear")


@dataclass(frozen=True)
class StoredOperand:
    """The sparse operand of a product.

    Attributes:
        elements: of the dense matrix.
        kept: values that are stored.
        index_bytes: that say where they are.
    """

    elements: int
    kept: int
    index_bytes: float


def sparse_products(events: RankEvents) -> dict[int, StoredOperand]:
    """Event id of each product around a sparse operand -> that operand."""
    if VALUES_OP not in events.table.events["name"].cat.categories:
        return {}
    found: dict[int, StoredOperand] = {}
    for asked in np.flatnonzero(events.name == VALUES_OP).tolist():
        dense, operand = _shape(events, asked), _operand(events, asked)
        for product in _products_around(events, asked) if operand else ():
            if product not in found and _takes(events, product, dense):
                found[product] = operand  # type: ignore[assignment]  # None has no products around it
    return found


def _operand(events: RankEvents, asked: int) -> StoredOperand | None:
    """What an `aten::values` gives out; None where its dense shape or its values were not recorded."""
    dense = _shape(events, asked)
    inside = range(asked + 1, min(asked + 3, len(events.name)))  # the alias follows at once
    stored = next((_shape(events, e) for e in inside if events.parent[e] == asked and events.name[e] == STORED_OP), ())
    if len(dense) != 2 or not prod(dense) or len(stored) not in (1, 3):
        return None
    rows = dense[0] / stored[1] if len(stored) == 3 else dense[0]
    return StoredOperand(prod(dense), prod(stored), index_bytes(stored[0], rows))


def _products_around(events: RankEvents, event: int) -> list[int]:
    found, current = [], int(events.parent[event])
    while current >= 0 and events.kind[current] == EventKind.CPU_OP:
        if events.name[current] in PRODUCTS:
            found.append(current)
        current = int(events.parent[current])
    return found


def _takes(events: RankEvents, product: int, dense: tuple[int, ...]) -> bool:
    """Whether the product has an argument of that shape, as it is or transposed."""
    return any(shape in (list(dense), list(dense[::-1])) for shape in _dims(events, product))


def _shape(events: RankEvents, event: int) -> tuple[int, ...]:
    """Of the first argument; () not recorded."""
    first = next(iter(_dims(events, event)), None)
    return tuple(edge for edge in first if type(edge) is int) if isinstance(first, list) else ()


def _dims(events: RankEvents, event: int) -> list[object]:
    text = events.table.events["input_dims"].iloc[event]
    return json.loads(text) if isinstance(text, str) else []
