"""Which ranks of a plan stand in its graph, and for how many ranks each stands.

Ranks of one stage do the same work at the same time: tensor ranks and replicas differ in their numbers only. So one
rank per stage is enough where nothing tells equal ranks apart; its collectives know their group's whole size.

    pipeline 2 x data 2 x tensor 2      rank = tensor + 2 (data + 2 pipeline)
    stage 0   0 1 | 2 3     -> 0, stands for 4
    stage 1   4 5 | 6 7     -> 4, stands for 4
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.plan.transformer.plan import Parallelism


@dataclass(frozen=True)
class Role:
    """Where a rank sits: stage of the pipeline, replica, tensor-parallel shard."""

    stage: int
    replica: int
    shard: int


@dataclass(frozen=True)
class RoleMap:
    """The ranks of a graph.

    Attributes:
        ranks: rank -> its role, ascending.
        multiplicity: rank -> number of ranks that it stands for, itself included.
    """

    ranks: dict[int, Role]
    multiplicity: dict[int, int]


def one_per_stage(ways: Parallelism) -> RoleMap:
    """The first rank of each stage, for all of the stage."""
    ranks = {rank_of(role, ways): role for role in (Role(stage, 0, 0) for stage in range(ways.pipeline))}
    return RoleMap(ranks, dict.fromkeys(ranks, ways.tensor * ways.data))


def every_rank(ways: Parallelism) -> RoleMap:
    """All ranks, each for itself."""
    roles = (Role(stage, replica, shard) for stage in range(ways.pipeline) for replica in range(ways.data)
             for shard in range(ways.tensor))  # fmt: skip
    ranks = {rank_of(role, ways): role for role in roles}
    return RoleMap(ranks, dict.fromkeys(ranks, 1))


def rank_of(role: Role, ways: Parallelism) -> int:
    """Its number in the job."""
    return role.shard + ways.tensor * (role.replica + ways.data * role.stage)
