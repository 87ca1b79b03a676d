"""What `gnnperf shard` found: ranked placements, what they are compared with, what each rank has to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from gnnperf.core import each
from gnnperf.generate import Placement, Split, parts_of, placement_as_written, vector_bytes
from gnnperf.shard.judge import Judged, judged
from gnnperf.shard.loads import INDICES, LOOKED_UP, MEMORY, UPDATED
from gnnperf.shard.problem import Problem
from gnnperf.shard.search import BY_SIZE, Effort, Ranked, candidates, random_placements, rank, seeds
from gnnperf.shard.surrogate_cost import Surrogate, surrogate

NUM_RANDOM = 11
GIVEN = "as the file has it"


@dataclass(frozen=True)
class RankLoad:
    """What one rank does in a step, and holds.

    Attributes:
        tables: of which it holds a part.
        lookups: indices that it looks up.
        work_us: of looking up and updating.
        vector_bytes: of the even all-to-all that keeps it as busy.
        memory_bytes: of tables, optimizer state and gradients of replicated tables.
    """

    tables: int
    lookups: float
    work_us: float
    vector_bytes: float
    memory_bytes: float


@dataclass(frozen=True)
class Answer:
    """The result.

    Attributes:
        problem: requested.
        ranked: the best placements, the fastest first.
        judged: of each of them.
        compared_us: steps of other placements, by their origin; none of random ones where none fits.
        requested: placements that were looked at.
    """

    problem: Problem
    ranked: tuple[Ranked, ...]
    judged: tuple[Judged, ...]
    compared_us: Mapping[str, float]
    costs: Surrogate
    requested: int


def answer(problem: Problem, effort: Effort, given: Placement | None, top: int) -> Answer:
    """Search, and judge what was found, the greedy placements and random ones by the schedule."""
    costs = surrogate(problem)
    known = {**seeds(costs.loads), **({} if given is None else {GIVEN: given})}
    requested: dict[Placement, Judged] = {}

    def price(placement: Placement) -> float:
        if placement not in requested:
            requested[placement] = judged(problem, costs.start(placement))
        return requested[placement].step_us

    ranked = rank(candidates(known.values(), costs, effort), known, price)[:top]
    compared = {name: price(placement) for name, placement in known.items()}
    drawn = each(list(random_placements(costs.loads, NUM_RANDOM, effort.seed)), "pricing random ones", "placements")
    random = [price(placement) for placement in drawn]
    if random:
        compared[f"median of {len(random)} random"] = median(random)
    return Answer(problem, ranked, tuple(requested[r.placement] for r in ranked), compared, costs, len(requested))


def rank_loads(result: Answer, placement: Placement) -> tuple[RankLoad, ...]:
    """Of each rank."""
    plan, state = result.problem.placed(placement), result.costs.start(placement)
    sent = vector_bytes(parts_of(plan), plan.ranks, plan.samples)  # [ranks]
    tables = [sum(r in placed.ranks for placed in placement) for r in range(plan.ranks)]
    copies = sum(t.pooling for t, p in zip(plan.model.tables, placement, strict=True) if _is_local(p.split, plan.ranks))
    lookups = state.per_rank[INDICES] * plan.batch + copies * plan.samples  # [ranks]
    work = state.per_rank[LOOKED_UP] + state.per_rank[UPDATED]
    columns = [values.tolist() for values in (lookups, work, sent, state.per_rank[MEMORY])]
    return tuple(RankLoad(*values) for values in zip(tables, *columns, strict=True))


def _is_local(split: Split, ranks: int) -> bool:
    return split is Split.REPLICATED or ranks == 1


def splits(placement: Placement) -> dict[str, int]:
    """How many tables are held in which way."""
    return {str(split): sum(placed.split is split for placed in placement) for split in Split}


def document(result: Answer) -> dict[str, object]:
    """Everything, for JSON."""
    problem, plan = result.problem, result.problem.plan
    return {
        "name": plan.name,
        "num_tables": len(problem.tables),
        "devices": problem.ranks,
        "hardware": problem.cluster.device.name,
        "cluster": problem.cluster.name,
        "batch": plan.batch,
        "capacity_bytes_per_device": problem.capacity_bytes,
        "num_judged": result.requested,
        "compared_step_us": dict(result.compared_us),
        "placements": [_one(result, r, j) for r, j in zip(result.ranked, result.judged, strict=True)],
    }


def _one(result: Answer, ranked: Ranked, stated: Judged) -> dict[str, object]:
    loads = rank_loads(result, ranked.placement)
    return {
        "step_us": ranked.step_us,
        "origin": ranked.origin,
        "critical_path_us": dict(stated.critical_us),
        "tables_by_split": splits(ranked.placement),
        "ranks": [vars(load) for load in loads],
        "placement": placement_as_written(result.problem.tables, ranked.placement, result.problem.ranks),
    }


def gain(result: Answer) -> float:
    """Share of the greedy-by-size step that the best placement saves."""
    return 1.0 - result.ranked[0].step_us / result.compared_us[BY_SIZE]


def unevenness(values: list[float]) -> float:
    """The busiest over the mean; 1 is even."""
    mean = float(np.mean(values))
    return max(values) / mean if mean > 0 else 1.0
