"""Embedding lookups: table, lookups and bags from shapes, then `gnnperf.analytic.embedding.model` by specification.

Indices are data. Where nothing is known about them (`KernelCall.access`: the counts of a run's card, columns of an op
table), uniform access is assumed, and cold caches. What the table's rows are in a gradient is not on a node;
it follows from the bytes, of which the written table is what lookups leave over.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import erf

import numpy as np

from gnnperf.analytic.embedding.model import INDEX_BYTES, Access, Lookups, lookup_costs, lookup_us
from gnnperf.analytic.kernels.call import Array, KernelCall, LookupAccess, Setting, known_rows, sized
from gnnperf.core import OpFamily
from gnnperf.graph import OpCall, TableCounts, UnknownCost

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


# Access to embedding tables as it was counted: from how often rows were requested.
# A histogram counts rows that a batch looks up once, twice, 3 to 4 times, ... (powers of two). Rates behind such counts
# are a mixture: a row with rate r is requested Poisson(r) times in a batch. The mixture on a grid of rates that makes
# the histogram most likely (with the rows never requested, whose number is known, as its zero) is found by expectation
# maximization (Laird 1978, nonparametric maximum likelihood; Efron and Thisted 1976 read rates off counts in the same
# way). To take the counts themselves for rates would make rows that were requested once by chance look hot.

NUM_RATES, STEPS = 96, 400
LEAST_RATE_SHARE = 0.05  # the grid begins at that share of the mean rate of a row
EXACT_COUNTS = 64  # Poisson probabilities of counts above come from the normal distribution
TINY = 1e-300


def counted_access(num_rows: float, reuse_histogram: np.ndarray, lookups: float) -> Access:
    """One table's access."""
    counts = np.append(max(num_rows - reuse_histogram.sum(), 0.0), reuse_histogram).astype(float)  # [1 + bins]
    most = float(2.0 ** np.flatnonzero(reuse_histogram).max())  # the largest count of the last bin that holds rows
    rates = np.geomspace(LEAST_RATE_SHARE * lookups / num_rows, most, NUM_RATES)
    rates = np.append(0.0, rates)  # [rates] lookups of a row in a batch
    # That a row of each rate is requested never, once, twice, 3 to 4 times, ...; beyond is last.
    below = np.stack([_at_most(rates, edge) for edge in (0.0, *2.0 ** np.arange(len(reuse_histogram)))], axis=1)
    below[:, -1] = 1.0
    likely = np.diff(below, axis=1, prepend=0.0)  # [rates, 1 + bins]
    share = np.full(len(rates), 1.0 / len(rates))  # [rates] of the rows
    for _ in range(STEPS):
        joint = share[:, None] * likely  # [rates, 1 + bins]
        share = (joint / np.maximum(joint.sum(axis=0), TINY) * counts).sum(axis=1) / counts.sum()
    rows = share * num_rows
    return Access(rows[None, :], (rates / (rows @ rates))[None, :])


def _at_most(rates: np.ndarray, count: float) -> np.ndarray:
    if count > EXACT_COUNTS:
        spread = np.sqrt(2.0 * np.maximum(rates, TINY))
        return np.array([0.5 * (1.0 + erf(z)) for z in (count + 0.5 - rates) / spread])
    term = np.exp(-rates)  # of 0
    total = term.copy()
    for k in range(1, int(count) + 1):
        term = term * rates / k
        total += term
    return np.minimum(total, 1.0)


def with_counts(calls: Sequence[KernelCall], counts: Sequence[TableCounts]) -> list[KernelCall]:
    """The calls; lookups in tables that were counted with their access."""
    return [_with_counts(call, counts) if counts and call.family == OpFamily.EMBEDDING else call for call in calls]


def _with_counts(call: KernelCall, counts: Sequence[TableCounts]) -> KernelCall:
    try:
        rows, dim = (round(size) for size in sizes_of(call)[:2])
    except (UnknownCost, IndexError):  # shapes that were not recorded: the form does not apply either
        return call
    # [rows, dim] is the table, or what one of several ranks has of it.
    result = [table for table in counts
              if -(-table.rows // max(round(table.rows / rows), 1)) == rows and table.dim % dim == 0]  # fmt: skip
    if not result:
        return call
    table = min(result, key=lambda t: (t.rows * t.dim, t.lookups))  # the whole table rather than a part of a larger one
    return replace(call, access=LookupAccess(_access(table, rows)))


@cache
def _access(table: TableCounts, rows: int) -> Access:
    histogram = np.array(table.reuse_histogram, float) / table.batches  # [bins]
    whole = counted_access(float(table.rows), histogram, float(table.lookups))
    share = rows / table.rows
    return Access(whole.rows * share, whole.probability / share)
