"""What a rank does with its tables: indices from everywhere, lookups, updates, dense gradients of replicated ones."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gnnperf.analytic import LOOK_UP, UPDATE, BatchedTable
from gnnperf.core import Phase
from gnnperf.generate.recommendation import network
from gnnperf.generate.recommendation.items import awaited, batched_op, ended, exchange, moves
from gnnperf.generate.recommendation.plan import FLOAT_BYTES, Part, RecommendationPlan, Travel, here, parts_of
from gnnperf.generate.transformer.items import TO_DEVICE, TO_HOST, Copy, HostWait, Lane, Line, Op, op, used
from gnnperf.generate.uses import use
from gnnperf.graph import Tensor

# What ranks tell each other about tables: indices to the holders, vectors back, gradients of vectors again.
#
# An uneven exchange is as long as the even one that keeps its busiest rank as busy (as gnnperf.graph.matching has it
# for recorded ones): of a rank that holds width w of a total W, each of n ranks with b samples,
#
#     even message = max(n b w, b (W - w) n / (n - 1))          what it sends, what it receives; its own part stays
#
# the larger of both, times the bytes of an element.

INDEX_BYTES = 8  # int64
LENGTH_BYTES = 4  # int32, one per sample and table (torchrec's KeyedJaggedTensor)


def even_bytes(width: np.ndarray, samples: int, item_bytes: float) -> np.ndarray:
    """Even message [ranks] bytes of each rank; `width` [ranks] elements per sample that a rank holds."""
    ranks = len(width)
    if ranks == 1:
        return np.zeros(1)
    sent, received = ranks * width, (width.sum() - width) * ranks / (ranks - 1)
    return np.maximum(sent, received) * samples * item_bytes


def widths(parts: tuple[Part, ...], ranks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per sample and rank: vector elements that it sends, indices that it receives, tables that it looks up."""
    elements, indices, tables = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
    for part in parts:
        held = list(part.ranks)
        if part.travel is Travel.POOLED:
            elements[held] += part.dim
        if part.travel is not Travel.STAYS:
            indices[held] += part.indices
            tables[held] += 1
    return elements, indices, tables


def summed_width(parts: tuple[Part, ...]) -> int:
    """Columns of tables whose partial sums are reduced on the way."""
    return sum(part.dim for part in parts if part.travel is Travel.SUMMED)


def vector_bytes(parts: tuple[Part, ...], ranks: int, samples: int) -> np.ndarray:
    """Even message [ranks] bytes of the vectors' all-to-all, and of their gradients'."""
    return even_bytes(widths(parts, ranks)[0], samples, FLOAT_BYTES)


@dataclass(frozen=True)
class Shared:
    """What programs of all ranks share."""

    plan: RecommendationPlan  # requested
    parts: tuple[Part, ...]  # of tables
    # elements, indices, tables: [ranks] see `widths`
    elements: np.ndarray
    indices: np.ndarray
    tables: np.ndarray
    # bottom, rest, bottom_backward: lines of the replicated part; `rest` is all between the two
    bottom: tuple[Line, ...]
    rest: tuple[Line, ...]
    bottom_backward: tuple[Line, ...]
    update: tuple[Line, ...]  # of replicated parameters


def shared_by_all(plan: RecommendationPlan) -> Shared:
    """The replicated part, and what travels."""
    parts = parts_of(plan)
    elements, indices, tables = widths(parts, plan.ranks)
    replicated = [(p.rows, p.dim) for p in parts if p.travel is Travel.STAYS and plan.ranks > 1]
    known = {
        f"looked_up_{Travel.STAYS}": any(p.travel is Travel.STAYS for p in parts),
        f"vectors_{Travel.POOLED}": bool(elements.any()),
        "vectors_parts": any(p.added_up > 1 for p in parts),
        f"vectors_{Travel.SUMMED}": summed_width(parts) > 0,
    }
    rest = (
        *network.interaction_forward(plan, " ".join(name for name, there in known.items() if there)),
        *network.perceptron_forward(plan, network.TOP),
        *network.loss(plan),
        *network.perceptron_backward(plan, network.TOP),
        *network.interaction_backward(plan),
    )
    return Shared(plan, parts, elements, indices, tables, tuple(network.perceptron_forward(plan, network.BOTTOM)), rest,
                  tuple(network.perceptron_backward(plan, network.BOTTOM)),
                  used(network.update(plan.model, replicated)))  # fmt: skip


F, B = Phase.FORWARD, Phase.BACKWARD
KEY_BITS_PER_PASS, SORTED_BYTES = 8, 12  # cub's radix sort; a 64-bit row number and a 32-bit place go together
LENGTHS, INDICES = "lengths", "indices"
OWN_INDICES = "own_indices"


def input_lines(shared: Shared, rank: int) -> Iterator[Line]:
    """Indices put in the holders' order, sent, and put in the order of tables."""
    yield use("data", "", **{network.NUMBERS: 0, OWN_INDICES: 0})  # counted among the inputs
    plan, requested = shared.plan, shared.indices
    if not requested.any():
        return
    in_rows = [p for p in shared.parts if p.added_up > 1 or p.travel is Travel.SUMMED]  # indices are sorted by holder
    by_row, given = sum(p.indices * len(p.ranks) for p in in_rows), OWN_INDICES
    if by_row:
        bucketed = moves("fbgemm::block_bucketize_sparse_features", 3.0 * plan.samples * by_row * INDEX_BYTES, F)
        yield from used(bucketed, given, bucketed=round(plan.samples * by_row) * INDEX_BYTES)
        given = "bucketed"
    permuted = moves("fbgemm::permute_2D_sparse_data", 2.0 * plan.samples * requested.sum() * INDEX_BYTES, F)
    yield from used(permuted, given, permuted=round(plan.samples * requested.sum()) * INDEX_BYTES)
    lengths = exchange(LENGTHS, even_bytes(shared.tables, plan.samples, LENGTH_BYTES), rank, F, "int32")
    yield from (lengths, ended(lengths), *awaited([lengths]), HostWait(F))
    indices = exchange(INDICES, even_bytes(requested, plan.samples, INDEX_BYTES), rank, F, "int64")
    mine = round(plan.batch * requested[rank]) * INDEX_BYTES
    yield from (*used(indices, "permuted", arrived=mine), ended(indices), *awaited([indices]))
    if requested[rank]:
        arranged = moves("fbgemm::permute_2D_sparse_data", 2.0 * plan.batch * requested[rank] * INDEX_BYTES, F)
        yield from used(arranged, "arrived", indices=mine)


def _tables(shared: Shared, rank: int, travel: Travel, *, update: bool) -> tuple[BatchedTable, ...]:
    plan = shared.plan
    return tuple(batched_table(part, plan, update=update) for part in here(shared.parts, rank, travel))


def batched_table(part: Part, plan: RecommendationPlan, *, update: bool) -> BatchedTable:
    """A part of a table as its kernel meets it."""
    state = part.state_bytes_per_row(plan.model.optimizer) if update else 0
    return BatchedTable(part.rows, part.dim, part.lookups(plan.batch, plan.ranks), part.samples(plan.batch, plan.ranks),
                        max(round(1000 * part.table.skew), 1), state)  # fmt: skip


def look_up(shared: Shared, rank: int, travel: Travel) -> Iterator[Line]:
    """One kernel for all tables here whose vectors go the same way."""
    plan, tables = shared.plan, _tables(shared, rank, travel, update=False)
    if tables:
        held = here(shared.parts, rank, travel)
        size = sum(p.dim * p.samples(plan.batch, plan.ranks) for p in held) * FLOAT_BYTES
        indices = OWN_INDICES if travel is Travel.STAYS else INDICES
        yield from over_host_link(plan, held, F, TO_DEVICE)
        yield from used(batched_op(LOOK_UP, tables, F), indices, **{f"looked_up_{travel}": size})


def over_host_link(plan: RecommendationPlan, held: tuple[Part, ...], phase: Phase, *ways: str) -> Iterator[Line]:
    """Rows that kernels read (TO_DEVICE) or write (TO_HOST) where the host holds them, before the kernel itself."""
    updated_by = plan.model.optimizer if phase is B else None
    moved = sum(part.host_bytes(plan.batch, plan.ranks, updated_by) for part in held)
    for way in ways if moved else ():
        yield Copy(way, float(moved), "float32", phase, Lane.COMPUTE)


def sort_bytes(part: Part, plan: RecommendationPlan) -> float:
    """Read and written to sort a part's indices."""
    return radix_sort_bytes(part.rows, part.lookups(plan.batch, plan.ranks))


def radix_sort_bytes(rows: int, lookups: int) -> float:
    """Read and written by a radix sort of indices into `rows`, 8 bits of a row's number at a time."""
    passes = math.ceil(max(math.log2(rows), 1.0) / KEY_BITS_PER_PASS)
    return 2.0 * passes * SORTED_BYTES * lookups


def update_rows(shared: Shared, rank: int, travel: Travel) -> Iterator[Line]:
    """Indices sorted by row, then gradients merged and rows updated; replicated tables have gradients instead."""
    held, stays = here(shared.parts, rank, travel), travel is Travel.STAYS
    if not held or (stays and shared.plan.ranks > 1):
        return
    lookups = sum(part.lookups(shared.plan.batch, shared.plan.ranks) for part in held)
    indices, gradient = (OWN_INDICES, "d_vectors") if stays else (INDICES, f"gradients_{travel}")
    linear = moves("fbgemm::linearize_index", 2.0 * lookups * INDEX_BYTES, B)
    sorting = moves("fbgemm::transpose_embedding_input", sum(sort_bytes(part, shared.plan) for part in held), B)
    yield from used(linear, indices, rows=lookups * INDEX_BYTES)
    yield from used(sorting, "rows", sorted_rows=2 * lookups * SORTED_BYTES)
    yield from over_host_link(shared.plan, held, B, TO_DEVICE, TO_HOST)
    yield from used(batched_op(UPDATE, _tables(shared, rank, travel, update=True), B),
                    f"{indices} {gradient} sorted_rows")  # fmt: skip


def dense_gradient(part: Part, plan: RecommendationPlan) -> Op:
    """aten::_embedding_bag_dense_backward(grad, indices, offsets, bag_size, maximum_indices, num_weights, ...)."""
    grad = Tensor((plan.samples, part.dim), "float32")
    indices = Tensor((part.lookups(plan.batch, plan.ranks),), "int64")
    return op("aten::_embedding_bag_dense_backward", B, grad, indices, values=["", "", "", "", "", str(part.rows)])
