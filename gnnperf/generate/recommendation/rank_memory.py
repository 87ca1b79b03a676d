"""What each rank of a recommendation plan holds: tables with optimizer state, perceptrons, and the tensors of a step.

    always     own parts of tables, their optimizer state (fused with the backward pass: no gradients), both perceptrons
               with state, DDP's buckets
    the step   indices, vectors of the own tables for all samples, vectors of all tables for the own samples, what the
               perceptrons and the interaction keep, gradients of vectors, sorted indices

Gradients of replicated tables are as large as the tables (no fused update: ranks have to agree).
"""

from __future__ import annotations

from gnnperf.generate.recommendation.build import rank_program
from gnnperf.generate.recommendation.lookups import INDEX_BYTES, LENGTH_BYTES, Shared, shared_by_all
from gnnperf.generate.recommendation.network import layers
from gnnperf.generate.recommendation.plan import FLOAT_BYTES, STATES, Part, RecommendationPlan
from gnnperf.generate.transformer.items import uses_of
from gnnperf.generate.uses import Pair, RankTensors, Stretch

ASSUMED = "The loader holds one batch, and names hold no tensor beyond its last use"


def recommendation_tensors(plan: RecommendationPlan) -> tuple[RankTensors, ...]:
    """One account for each set of ranks that hold the same, given for the first of them."""
    shared, result = shared_by_all(plan), {}
    for rank in range(plan.ranks):
        parts = tuple(part for part in shared.parts if rank in part.ranks)
        key = tuple((p.table.name, p.rows, p.dim) for p in parts)
        if key not in result:
            result[key] = _rank(shared, rank, parts)
    return tuple(result.values())


def _rank(shared: Shared, rank: int, parts: tuple[Part, ...]) -> RankTensors:
    plan = shared.plan
    step = uses_of(rank_program(shared, rank))
    shapes = [n for inputs, outputs in layers(plan.model) for n in (inputs * outputs, outputs)]  # weights and biases
    dense = tuple(n * FLOAT_BYTES for n in shapes)
    tables = tuple(p.rows * p.dim * FLOAT_BYTES for p in parts)
    state = tuple(p.rows * p.state_bytes_per_row(plan.model.optimizer) for p in parts)
    return RankTensors(
        rank, (*dense, *tables), (), (*(n for n in dense for _ in range(STATES[plan.model.optimizer])), *state),
        (Stretch(Pair(step, ()), False),), _inputs(shared, rank), dense if plan.ranks > 1 else (), (ASSUMED,),
    )  # fmt: skip


def _inputs(shared: Shared, rank: int) -> tuple[int, ...]:
    """Numbers, labels, indices and lengths of the own samples of all tables."""
    plan = shared.plan
    indices = sum(part.table.pooling for part in shared.parts)
    lengths = len(shared.parts) * plan.samples * LENGTH_BYTES
    numbers = plan.samples * plan.model.dense_features * FLOAT_BYTES
    return numbers, plan.samples * FLOAT_BYTES, round(plan.samples * indices) * INDEX_BYTES, lengths
