"""What each stage of a planned transformer holds: all the time, and stretch by stretch of its schedule.

    stage 0 of 2, 1F1B    F0 F1 B0 F2 B1 B2     F: embedding, layers, sent     B: sent, layers, embedding

How many micro-batches are in flight is nowhere stated: it follows from the order of passes.

Parameters, gradients and Adam in mixed precision are 2 + 2 + 12 bytes per parameter (Rajbhandari et al. 2020,
arXiv 1910.02054, section 3.1): float32 copies of parameters and two moments. While the optimizer runs, there are
float32 gradients next to, unless they are summed in float32.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from gnnperf.generate.transformer.activations import recomputed, retained_bytes
from gnnperf.generate.transformer.gradients import held_gradient_dtype
from gnnperf.generate.transformer.items import Group, Store
from gnnperf.generate.transformer.passes import Gradient, Order, stage_passes
from gnnperf.generate.transformer.plan import Parallelism, Recompute, Sharded, TransformerPlan
from gnnperf.generate.transformer.rank_memory import gradients_bytes, parameters_bytes, state_bytes, step_changes
from gnnperf.generate.transformer.rank_nodes import extents
from gnnperf.generate.transformer.sizes import Count, parameters_of, stage_count
from gnnperf.generate.uses import RankTensors, Stretch
from gnnperf.graph import DTYPE_BYTES

# Which ranks of a plan stand in its graph, and for how many ranks each stands.
#
# Ranks of one stage do the same work at the same time. This is what `plan.fold` finds in a graph of all ranks, known
# beforehand, so that a large plan is never built in full.
#
#     pipeline 2 x data 2 x tensor 2      rank = tensor + 2 (data + 2 pipeline)
#     stage 0   0 1 | 2 3     -> 0, stands for 4
#     stage 1   4 5 | 6 7     -> 4, stands for 4


@dataclass(frozen=True)
class Role:
    """Where a rank sits: stage of the pipeline, replica and part of the sequence, tensor-parallel shard."""

    stage: int
    replica: int  # context ranks of a replica are side by side
    shard: int


@dataclass(frozen=True)
class RoleMap:
    """The ranks of a graph."""

    ranks: dict[int, Role]  # rank -> its role, ascending
    multiplicity: dict[int, int]  # rank -> number of ranks that it stands for, itself included


def one_per_stage(ways: Parallelism) -> RoleMap:
    """The first rank of each stage, for all of the stage."""
    ranks = {rank_of(role, ways): role for role in (Role(stage, 0, 0) for stage in range(ways.pipeline))}
    return RoleMap(ranks, dict.fromkeys(ranks, ways.tensor * ways.data_context))


def rank_of(role: Role, ways: Parallelism) -> int:
    """Its number in the job."""
    return role.shard + ways.tensor * (role.replica + ways.data_context * role.stage)


ASSUMED = "Python's names hold no tensor beyond its last use, and a stage lets go of what it has sent"


def stage_tensors(plan: TransformerPlan) -> tuple[RankTensors, ...]:
    """The memory of each stage, given for its first rank: its ranks hold the same."""
    return tuple(
        RankTensors(
            rank_of(Role(stage, 0, 0), plan.parallelism),
            (parameters_bytes(plan, stage),),
            gradients_bytes(plan, stage),
            state_bytes(plan, stage),
            tuple(each for each in step_changes(plan, stage) if isinstance(each, Stretch) or each.num_bytes),
            assumed=(ASSUMED,),
        )
        for stage in range(plan.parallelism.pipeline)
    )


# Groups of a plan that do not lie on machines evenly: equal ranks then have unequal links.


def misplaced_groups(plan: TransformerPlan, ranks_per_node: int) -> tuple[str, ...]:
    """Sentences about groups of which some span more machines than others; ranks fill machines in order."""
    ways = plan.parallelism
    return tuple(
        f"Groups of kind {group!s} lie on machines of {ranks_per_node} ranks in unequal ways; all are taken as the "
        "first one."
        for group, (size, stride) in extents(ways).items()
        if size > 1
        and (group is not Group.EXPERT_DATA or ways.expert > 1)
        and ways.world_size > size * stride
        and ranks_per_node % (size * stride)
        and size * stride % ranks_per_node
    )


# What a rank of a plan holds, in closed form: what a search cuts by, thousands of plans per second.
#
#     always       weights, sums of gradients, optimizer state (Rajbhandari et al. 2020, ZeRO, section 3.1), divided by
#                  replicas as the plan shares them
#     in flight    what layers keep (Korthikanti et al. 2022) x micro-batches in flight, which follow from the order
#     at work      a layer that is computed again, logits in float32, whole parameters of a unit (FSDP)
#
# Work space of single ops and the allocator are not in it, so that no account of tensors is below it.

FLOAT_BYTES = DTYPE_BYTES["float32"]
MOMENTS = 2


def held_bytes(plan: TransformerPlan) -> float:
    """Of the rank that holds most."""
    stages = {0, plan.parallelism.pipeline - 1, min(1, plan.parallelism.pipeline - 1)}  # the others hold less
    return max(_stage_bytes(plan, stage) for stage in stages)


def _stage_bytes(plan: TransformerPlan, stage: int) -> float:
    """The most of two moments: all micro-batches in flight, before the first gradient of a step; the update."""
    whole_count, on_host = stage_count(plan, stage), plan.offload.optimizer
    own = whole_count.over(plan) if plan.sharding.shards_update else whole_count
    every_pass, sum_dtype = plan.sharding.reduces_every_pass, held_gradient_dtype(plan)
    weights = _weights_bytes(plan, whole_count)
    sums = float(DTYPE_BYTES[sum_dtype] * (own if every_pass else whole_count).total)
    state = (1 + MOMENTS) * FLOAT_BYTES * own.total if on_host is Store.DEVICE else 0.0  # float32 weights, two moments
    logits_bytes = plan.tokens * plan.vocabulary_per_rank * (FLOAT_BYTES + DTYPE_BYTES[plan.model.dtype])  # twice
    logits = logits_bytes if stage == plan.last_stage else 0.0
    passes = weights + _flying_bytes(plan, stage) + max(_recomputed_bytes(plan), float(logits))
    if not (every_pass and plan.num_micro_batches == 1):
        passes += sums  # else the first ones come when what is in flight has begun to go
    whole = 0.0 if plan.sharding.state is Sharded.PARAMETERS else weights  # else in parts again
    casts = sum_dtype != "float32" and on_host is Store.DEVICE  # gradients in float32 for the update
    return float(state) + max(passes, whole + sums + (FLOAT_BYTES * own.total if casts else 0.0))


def _flying_bytes(plan: TransformerPlan, stage: int) -> float:
    """What layers keep for micro-batches in flight, each in the smallest part of the model on the stage."""
    if plan.offload.activations is not Store.DEVICE:
        return 0.0
    order = plan.order
    parts = [plan.layers_of_part(order.part(stage, chunk)) for chunk in range(order.chunks)]
    retained = min(sum(n * retained_bytes(plan, i) for i, n in _kinds(plan, part)) for part in parts)
    short = replace(order, micro_batches=min(order.micro_batches, 2 * order.parts))
    return retained * most_in_flight(order if order.pipeline.keeps_all else short, stage) if retained else 0.0


def _kinds(plan: TransformerPlan, layers: range) -> Iterator[tuple[int, int]]:
    """A layer of each kind among some in a row, and how many there are."""
    known: dict[Hashable, list[int]] = {}
    if plan.alike and layers:
        first = min(plan.schedule.recomputed_layers or 0, len(layers))  # of a chunk; others keep all
        yield from ((layers[i], n) for i, n in ((0, first), (first, len(layers) - first)) if n)
        return
    for layer in layers:
        kind = plan.has_experts(layer), recomputed(plan, layer)
        known.setdefault(kind, []).append(layer)
    yield from ((layers[0], len(layers)) for layers in known.values())


@lru_cache(maxsize=4096)
def most_in_flight(order: Order, stage: int) -> int:
    """Most passes of a stage whose gradients are still to come; with B and W apart, until W."""
    held = most = 0
    for each in stage_passes(order, stage):
        held += 0 if each.gradient is Gradient.INPUT else -1 if each.backward else 1
        most = max(most, held)
    return most


def _weights_bytes(plan: TransformerPlan, count: Count) -> float:
    """In the dtype of products: whole, or what of them is gathered (FSDP): all, or the largest unit."""
    half = DTYPE_BYTES[plan.model.dtype]
    if plan.sharding.state is not Sharded.PARAMETERS or not plan.sharding.reshard_after_forward:
        return float(half * count.total)
    return float(half * max(parameters_of(plan, i).total for i, _ in _kinds(plan, range(plan.model.layers))))


def _recomputed_bytes(plan: TransformerPlan) -> float:
    """What a layer keeps that is computed again, while it is."""
    if plan.schedule.recompute is not Recompute.FULL or plan.schedule.recomputed_layers is not None:
        return 0.0  # the last layers, which keep all, have let it go before others are computed again
    retained = replace(plan, schedule=plan.schedule.without_recomputation())
    return max(retained_bytes(retained, i) for i, _ in _kinds(retained, range(plan.model.layers)))
