"""The search: against all placements of small problems, never worse than its seeds, any price, the same twice."""

from __future__ import annotations

from itertools import product

import pytest

from gnnperf.generate.tables import Placed, Placement, Split
from gnnperf.shard.problem import on_ranks, ways
from gnnperf.shard.search import SEARCHED, Effort, candidates, rank, seeds
from gnnperf.shard.surrogate_cost import Surrogate, surrogate
from tests.shard.problems import problem, tables

QUICK = Effort(requested=3000, judged=4)


def _best(costs: Surrogate) -> float:
    """Of all placements on two ranks."""
    ranks: dict[int, list[tuple[int, ...]]] = {1: [(0,), (1,)], 2: [(0, 1)]}
    choices = [
        [on_ranks(split, own) for split, number in ways(costs.problem, table) for own in ranks[number]]
        for table in costs.problem.tables
    ]
    return min(costs.value(costs.start(placement))[0] for placement in product(*choices))


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_all_placements_of_four_tables_is_detected(seed: int) -> None:
    costs = surrogate(problem(tables(4, seed, dim=16), 2))
    result = candidates(seeds(costs.loads).values(), costs, QUICK)
    assert costs.value(costs.start(result[0]))[0] == pytest.approx(_best(costs), rel=1e-9)


def test_detected_placements_are_never_worse_than_greedy_ones() -> None:
    costs = surrogate(problem(tables(20, 3), 8))
    begins = seeds(costs.loads)
    result = candidates(begins.values(), costs, QUICK)
    assert len(result) == len(set(result)) == QUICK.judged
    best = costs.value(costs.start(result[0]))
    assert best <= min(costs.value(costs.start(placement)) for placement in begins.values())


def test_any_price_ranks() -> None:
    """A price that only counts tables on rank 0, as a recorded graph's edit would be another one."""
    placements: list[Placement] = [
        tuple(Placed(Split.TABLE, (r,)) for r in ranks) for ranks in product((0, 1), repeat=2)
    ]

    def on_zero(placement: Placement) -> float:
        return float(sum(placed.ranks == (0,) for placed in placement))

    ranked = rank(placements[:3], {"given": placements[3], "again": placements[0]}, on_zero)
    assert [r.step_us for r in ranked] == [0.0, 1.0, 1.0, 2.0]
    assert [r.origin for r in ranked] == ["given", SEARCHED, SEARCHED, SEARCHED]


def test_one_device_has_one_placement() -> None:
    costs = surrogate(problem(tables(3), 1))
    (only,) = candidates(seeds(costs.loads).values(), costs, QUICK)
    assert only == (Placed(Split.TABLE, (0,)),) * 3
