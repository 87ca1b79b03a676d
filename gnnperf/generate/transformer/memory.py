"""What each stage of a planned transformer holds: all the time, and stretch by stretch of its schedule.

    stage 0 of 2, 1F1B    F0 F1 B0 F2 B1 B2     F: embedding, layers, sent     B: sent, layers, embedding

How many micro-batches are in flight is nowhere stated: it follows from the order of passes.

Parameters, gradients and Adam in mixed precision are 2 + 2 + 12 bytes per parameter (Rajbhandari et al. 2020,
arXiv 1910.02054, section 3.1): float32 copies of parameters and two moments. While the optimizer runs, there are
float32 gradients next to, unless they are summed in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product, starmap

from gnnperf.generate.transformer.items import Group
from gnnperf.generate.transformer.plan import Parallelism, TransformerPlan
from gnnperf.generate.transformer.rank_memory import gradients_bytes, parameters_bytes, state_bytes, step_changes
from gnnperf.generate.transformer.rank_nodes import extents
from gnnperf.generate.uses import RankTensors, Stretch

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


def every_rank(ways: Parallelism) -> RoleMap:
    """All ranks, each for itself."""
    roles = starmap(Role, product(range(ways.pipeline), range(ways.data_context), range(ways.tensor)))
    ranks = {rank_of(role, ways): role for role in roles}
    return RoleMap(ranks, dict.fromkeys(ranks, 1))


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
