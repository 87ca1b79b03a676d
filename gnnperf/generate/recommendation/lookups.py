"""What a rank does with its tables: indices from everywhere, lookups, updates, dense gradients of replicated ones."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gnnperf.analytic import LOOK_UP, UPDATE, BatchedTable
from gnnperf.core import Phase
from gnnperf.generate.recommendation.items import Await, BatchedOp, Item, Moves, exchange
from gnnperf.generate.recommendation.parts import Part, Travel, here
from gnnperf.generate.recommendation.plan import RecommendationPlan
from gnnperf.generate.recommendation.shared import INDEX_BYTES, LENGTH_BYTES, Shared, even_bytes
from gnnperf.generate.transformer.items import HostWait, op
from gnnperf.graph import Tensor

F, B = Phase.FORWARD, Phase.BACKWARD
KEY_BITS_PER_PASS, SORTED_BYTES = 8, 12  # cub's radix sort; a 64-bit row number and a 32-bit place go together
LENGTHS, INDICES = "lengths", "indices"


def input_items(shared: Shared, rank: int) -> Iterator[Item]:
    """Indices put in the holders' order, sent, and put in the order of tables."""
    samples, requested = shared.plan.samples, shared.indices
    if not requested.any():
        return
    by_row = sum(p.indices * len(p.ranks) for p in shared.parts if p.added_up > 1 or p.travel is Travel.SUMMED)
    if by_row:
        yield Moves("fbgemm::block_bucketize_sparse_features", 3.0 * samples * by_row * INDEX_BYTES, F)
    yield Moves("fbgemm::permute_2D_sparse_data", 2.0 * samples * requested.sum() * INDEX_BYTES, F)
    yield exchange(LENGTHS, even_bytes(shared.tables, samples, LENGTH_BYTES), rank, F, "int32")
    yield Await((LENGTHS,))
    yield HostWait(F)
    yield exchange(INDICES, even_bytes(requested, samples, INDEX_BYTES), rank, F, "int64")
    yield Await((INDICES,))
    if requested[rank]:
        yield Moves("fbgemm::permute_2D_sparse_data", 2.0 * shared.plan.batch * requested[rank] * INDEX_BYTES, F)


def _tables(shared: Shared, rank: int, travel: Travel, *, update: bool) -> tuple[BatchedTable, ...]:
    plan = shared.plan
    return tuple(batched_table(part, plan, update=update) for part in here(shared.parts, rank, travel))


def batched_table(part: Part, plan: RecommendationPlan, *, update: bool) -> BatchedTable:
    """A part of a table as its kernel meets it."""
    state = part.state_bytes_per_row(plan.model.optimizer) if update else 0
    return BatchedTable(part.rows, part.dim, part.lookups(plan.batch, plan.ranks), part.samples(plan.batch, plan.ranks),
                        max(round(1000 * part.table.skew), 1), state)  # fmt: skip


def look_up(shared: Shared, rank: int, travel: Travel) -> Iterator[Item]:
    """One kernel for all tables here whose vectors go the same way."""
    tables = _tables(shared, rank, travel, update=False)
    if tables:
        yield BatchedOp(LOOK_UP, tables, F)


def sort_bytes(part: Part, plan: RecommendationPlan) -> float:
    """Read and written to sort a part's indices."""
    return radix_sort_bytes(part.rows, part.lookups(plan.batch, plan.ranks))


def radix_sort_bytes(rows: int, lookups: int) -> float:
    """Read and written by a radix sort of indices into `rows`, 8 bits of a row's number at a time."""
    passes = math.ceil(max(math.log2(rows), 1.0) / KEY_BITS_PER_PASS)
    return 2.0 * passes * SORTED_BYTES * lookups


def update_rows(shared: Shared, rank: int, travel: Travel) -> Iterator[Item]:
    """Indices sorted by row, then gradients merged and rows updated; replicated tables have gradients instead."""
    held = here(shared.parts, rank, travel)
    if not held or (travel is Travel.STAYS and shared.plan.ranks > 1):
        return
    indices = sum(part.lookups(shared.plan.batch, shared.plan.ranks) for part in held)
    yield Moves("fbgemm::linearize_index", 2.0 * indices * INDEX_BYTES, B)
    yield Moves("fbgemm::transpose_embedding_input", sum(sort_bytes(part, shared.plan) for part in held), B)
    yield BatchedOp(UPDATE, _tables(shared, rank, travel, update=True), B)


def dense_gradient(part: Part, plan: RecommendationPlan) -> Item:
    """aten::_embedding_bag_dense_backward(grad, indices, offsets, bag_size, maximum_indices, num_weights, ...)."""
    grad = Tensor((plan.samples, part.dim), "float32")
    indices = Tensor((part.lookups(plan.batch, plan.ranks),), "int64")
    return op("aten::_embedding_bag_dense_backward", B, grad, indices, values=["", "", "", "", "", str(part.rows)])
