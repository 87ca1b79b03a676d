"""RecommendationPlan -> ExecutionGraph: the graph of a step that never ran, in the form that recorded ones have.

Ranks hold different tables, so all of them are in it unless others are requested. What they have in common is made once
(`lookups.Shared`).
"""

from collections.abc import Iterator, Sequence

from gnnperf.core import Phase
from gnnperf.generate.recommendation import lookups
from gnnperf.generate.recommendation.items import awaited, ended, equal, exchange
from gnnperf.generate.recommendation.lookups import Shared, even_bytes, shared_by_all, summed_width
from gnnperf.generate.recommendation.network import layers
from gnnperf.generate.recommendation.plan import FLOAT_BYTES, STATES, Part, RecommendationPlan, Travel, here
from gnnperf.generate.transformer.build import planned_graph
from gnnperf.generate.transformer.items import Line, Placed, Transfer, fused, items_of, used, uses_of
from gnnperf.generate.transformer.memory import Role, RoleMap
from gnnperf.generate.transformer.plan import Parallelism
from gnnperf.generate.transformer.rank_nodes import nodes_of_ranks
from gnnperf.generate.uses import Pair, RankTensors, Stretch, Use
from gnnperf.graph import ExecutionGraph, Tensor

# What one rank does in a step, item by item.
#
#     indices to holders | look up | vectors begin ......... arrive |
#                                  | bottom perceptron ------------ | interaction, top, loss, backward of both |
#     gradients of vectors begin ......... arrive |
#     | backward of the bottom perceptron ------- | update rows | optimizer of what is replicated
#
# Lookups before the bottom perceptron, so that vectors travel next to it, and their gradients next to its backward pass
# (Naumov et al. 2019, section 2.3; facebookresearch/dlrm, extend_distributed.py). Indices go to their holders within
# the step, lengths first, for which the host waits (torchrec's KJTAllToAll without a pipeline). All collectives share
# one stream, as of one process group.

F, B = Phase.FORWARD, Phase.BACKWARD
VECTORS, SUMS = "vectors", "sums"
GRADIENTS, SUM_GRADIENTS, TABLE_GRADIENTS = "gradients of vectors", "gradients of sums", "gradients of tables"


def rank_program(shared: Shared, rank: int) -> tuple[Line, ...]:
    """All lines of a step."""
    travels, back = tuple(_begun(shared, rank)), tuple(_gradients_begun(shared, rank))
    summed, samples = [p for p in shared.parts if p.added_up > 1], shared.plan.samples
    added_up: tuple[Line, ...] = ()  # partial sums of rows that lie on a part of the ranks
    if summed:
        read = Tensor((samples, sum(p.dim * (p.added_up + 1) for p in summed)), "float32")
        result = samples * sum(p.dim for p in summed) * FLOAT_BYTES
        added_up = used(fused("sum_of_parts", F, read), f"vectors_{Travel.POOLED}", vectors_parts=result)
    return (
        *lookups.input_lines(shared, rank),
        *(line for travel in Travel for line in lookups.look_up(shared, rank, travel)),
        *travels,
        *shared.bottom,
        *awaited(travels),
        *added_up,
        *shared.rest,
        *back,
        *shared.bottom_backward,
        *awaited(back),
        *(line for travel in Travel for line in lookups.update_rows(shared, rank, travel)),
        *_replicated_gradients(shared, rank),
        *shared.update,
    )


def _begun(shared: Shared, rank: int) -> Iterator[Line]:
    """Vectors of the own tables, of all samples, leave; those of all tables of the own samples come."""
    plan, summed = shared.plan, summed_width(shared.parts)
    looked_up = {t: f"looked_up_{t}" if here(shared.parts, rank, t) else "" for t in Travel}
    if shared.elements.any():
        pooled = exchange(VECTORS, even_bytes(shared.elements, plan.samples, FLOAT_BYTES), rank, F)
        arriving = round(plan.samples * shared.elements.sum()) * FLOAT_BYTES
        yield from (*used(pooled, looked_up[Travel.POOLED], vectors_pooled=arriving), ended(pooled))
    if summed:
        sums = equal(SUMS, "reduce_scatter", plan.batch * summed * FLOAT_BYTES, F)
        own = plan.samples * summed * FLOAT_BYTES
        yield from (*used(sums, looked_up[Travel.SUMMED], vectors_summed=own), ended(sums))


def _gradients_begun(shared: Shared, rank: int) -> Iterator[Line]:
    """Back to the holders: of all samples for the own tables."""
    plan, summed = shared.plan, summed_width(shared.parts)
    if shared.elements.any():
        pooled = exchange(GRADIENTS, even_bytes(shared.elements, plan.samples, FLOAT_BYTES), rank, B)
        mine = round(plan.batch * shared.elements[rank]) * FLOAT_BYTES
        yield from (*used(pooled, "d_vectors", gradients_pooled=mine), ended(pooled))
    if summed:
        sums = equal(SUM_GRADIENTS, "all_gather", plan.samples * summed * FLOAT_BYTES, B)
        yield from (*used(sums, "d_vectors", gradients_summed=plan.batch * summed * FLOAT_BYTES), ended(sums))


def _replicated_gradients(shared: Shared, rank: int) -> Iterator[Line]:
    """Dense gradients of replicated tables, summed over ranks in one bucket; the optimizer waits for all sums."""
    plan = shared.plan
    held = here(shared.parts, rank, Travel.STAYS) if plan.ranks > 1 else ()
    for part in held:
        item, size = lookups.dense_gradient(part, plan), part.rows * part.dim * FLOAT_BYTES
        yield from (item, Use(item.name, ("d_vectors", lookups.OWN_INDICES), (), (size,)))
    sums = [line for line in (*shared.rest, *shared.bottom_backward) if isinstance(line, Transfer)]
    if held:
        moved = sum(float(part.rows * part.dim * FLOAT_BYTES) for part in held)
        sums.append(equal(TABLE_GRADIENTS, "all_reduce", moved, B))
        yield from (sums[-1], ended(sums[-1]))
    yield from awaited(sums)


def build_recommendation(plan: RecommendationPlan, ranks: Sequence[int] | None = None) -> ExecutionGraph:
    """The graph of one step; every latency, start and lag is NaN.

    `ranks`: which are in the graph, ascending; None: all. Collectives are those of all ranks in any case.
    """
    shared, ways = shared_by_all(plan), Parallelism(tensor=plan.ranks)
    chosen = tuple(range(plan.ranks) if ranks is None else ranks)
    programs = [[Placed(item) for item in items_of(rank_program(shared, rank))] for rank in chosen]
    own = dict(zip(chosen, nodes_of_ranks(programs, ways), strict=True))
    roles = RoleMap({rank: Role(0, 0, rank) for rank in own}, {})
    return planned_graph(plan.name, own, roles, ways, plan)


# What each rank holds: tables with optimizer state, perceptrons, and the tensors of a step.
#
#     always     own parts of tables, their optimizer state (fused with the backward pass: no gradients), perceptrons
#                with state, DDP's buckets
#     the step   indices, vectors of the own tables for all samples, vectors of all tables for the own samples, what the
#                perceptrons and the interaction keep, gradients of vectors, sorted indices
#
# Gradients of replicated tables are as large as the tables (no fused update: ranks have to agree).

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
    held = [part for part in parts if not part.table.host]
    tables = tuple(p.rows * p.dim * FLOAT_BYTES for p in held)
    state = tuple(p.rows * p.state_bytes_per_row(plan.model.optimizer) for p in held)
    numbers, lengths = plan.model.dense_features * FLOAT_BYTES, len(shared.parts) * plan.samples * lookups.LENGTH_BYTES
    indices = round(plan.samples * sum(part.table.pooling for part in shared.parts)) * lookups.INDEX_BYTES
    inputs = plan.samples * numbers, plan.samples * FLOAT_BYTES, indices, lengths  # of all tables; second: labels
    return RankTensors(
        rank, (*dense, *tables), (), (*(n for n in dense for _ in range(STATES[plan.model.optimizer])), *state),
        (Stretch(Pair(step, ()), False),), inputs, dense if plan.ranks > 1 else (), (ASSUMED,),
    )  # fmt: skip
