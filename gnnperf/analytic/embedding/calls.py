"""Embedding lookups: table, lookups and bags from shapes, then `gnnperf.analytic.embedding.model` by specification.

Indices are data. Where nothing is known about them (`KernelCall.access`: the counts of a run's card, columns of an op
table), uniform access is assumed, and cold caches. What the table's rows are in a gradient is not on a node;
it follows from the bytes, of which the written table is what lookups leave over.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gnnperf.analytic.embedding.model import INDEX_BYTES, Lookups, lookup_costs, lookup_us
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, known_rows, sized
from gnnperf.graph import OpCall, UnknownCost

Size = tuple[float, float, float, float]  # rows of the table, columns, lookups, bags


def _embedding(call: OpCall) -> Size:
    """embedding(weight [rows, dim], indices): a bag for each lookup."""
    weight, indices = call.tensor(0), call.tensor(1)
    return float(weight.shape[0]), float(weight.shape[-1]), float(indices.numel), float(indices.numel)


def _embedding_bag(call: OpCall) -> Size:
    """_embedding_bag(weight [rows, dim], indices [n], offsets [bags], ...)."""
    weight, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    bags = indices.shape[0] if len(indices.shape) == 2 else offsets.numel
    return float(weight.shape[0]), float(weight.shape[-1]), float(indices.numel), float(bags)


SIZES: Mapping[str, Callable[[OpCall], Size]] = {
    "aten::embedding": _embedding,
    "aten::_embedding_bag": _embedding_bag,
    "aten::_embedding_bag_forward_only": _embedding_bag,
    "aten::embedding_bag": _embedding_bag,
}


def _written(in_bags: bool) -> Callable[[KernelCall], Size]:
    """Of a dense gradient (grad_output, indices, ...): the table is what look-ups leave over of the bytes.

    embedding_dense_backward: grad_output [n, dim], bytes = indices + 3 grad_output + table
    _embedding_bag_dense_backward: grad [bags, dim], bytes = indices + grad + 2 rows + table
    """

    def sizes(call: KernelCall) -> Size:
        parsed = call.parsed()
        grad, indices = parsed.tensor(0), parsed.tensor(1)
        dim, lookups = grad.shape[-1], indices.numel
        moved = grad.numel + 2.0 * lookups * dim if in_bags else 3.0 * grad.numel
        table_bytes = call.moved_bytes - INDEX_BYTES * lookups - moved * call.item_bytes
        rows = table_bytes / max(dim * call.item_bytes, 1)
        if not rows >= 1.0:
            raise UnknownCost
        return rows, float(dim), float(lookups), float(grad.shape[0] if in_bags else lookups)

    return sizes


DENSE_SIZES: Mapping[str, Callable[[KernelCall], Size]] = {
    "aten::embedding_dense_backward": _written(in_bags=False),
    "aten::_embedding_bag_dense_backward": _written(in_bags=True),
}


def lookups_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of embeddings and embedding bags, forward and dense backward; NaN: another op, or sizes not known."""
    result = np.full(len(calls), np.nan)
    costs = lookup_costs(setting.device, setting.memory)
    sizes = sized(calls, sizes_of, 4)
    for row in known_rows(sizes):
        call, access = calls[row], calls[row].access
        rows, dim, lookups, bags, skew, tables = (np.array([v]) for v in (*sizes[row], access.skew, access.tables))
        requested = Lookups(rows, dim, lookups, bags, skew, tables, np.array([access.warm]), call.item_bytes,
                        access.counted)  # fmt: skip
        result[row] = lookup_us(requested, costs, call.op_name in DENSE_SIZES)[0]
    return result


def sizes_of(call: KernelCall) -> Size:
    """Rows of the table, columns, lookups, bags. Raises UnknownCost: another op, or they are unknown."""
    if call.op_name in DENSE_SIZES:
        return DENSE_SIZES[call.op_name](call)
    if call.op_name not in SIZES:
        raise UnknownCost
    size = SIZES[call.op_name](call.parsed())
    if not min(size) >= 1.0:
        raise UnknownCost
    return size
