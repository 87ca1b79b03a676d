"""Which ranks of a plan stand in its graph, and for how many ranks each stands.

Ranks of one stage do the same work at the same time: tensor ranks and replicas differ in their numbers only. So one
rank per stage is enough where nothing tells equal ranks apart; its collectives know their group's whole size. This is
what `plan.fold` finds in a graph of all ranks, known beforehand, so that a large plan is never built in full.

    pipeline 2 x data 2 x tensor 2      rank = tensor + 2 (data + 2 pipeline)
    stage 0   0 1 | 2 3     -> 0, stands for 4
    stage 1   4 5 | 6 7     -> 4, stands for 4
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from gnnperf.generate.transformer.plan import Parallelism


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


def all_roles(ways: Parallelism) -> Iterator[Role]:
    """One per rank, in order of ranks."""
    for stage, replica, shard in product(range(ways.pipeline), range(ways.data), range(ways.tensor)):
        yield Role(stage, replica, shard)


def every_rank(ways: Parallelism) -> RoleMap:
    """All ranks, each for itself."""
    ranks = {rank_of(role, ways): role for role in all_roles(ways)}
    return RoleMap(ranks, dict.fromkeys(ranks, 1))


def rank_of(role: Role, ways: Parallelism) -> int:
    """Its number in the job."""
    return role.shard + ways.tensor * (role.replica + ways.data * role.stage)
