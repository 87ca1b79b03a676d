"""The search: against all placements of small problems, never worse than its seeds, any price, the same twice."""

from itertools import product

import numpy as np
import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.recommendation.plan import Placed, Placement, Split, Table
from gnnperf.shard import placement_search
from gnnperf.shard.placement_search import SEARCHED, Effort, candidates, greedy, rank, seeds
from gnnperf.shard.problem import Loads, on_ranks, ways
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
    pairs = product((0, 1), repeat=2)
    placements: list[Placement] = [tuple(Placed(Split.TABLE, (r,)) for r in ranks) for ranks in pairs]

    def on_zero(placement: Placement) -> float:
        return float(sum(placed.ranks == (0,) for placed in placement))

    ranked = rank(placements[:3], {"given": placements[3], "again": placements[0]}, on_zero)
    assert [r.step_us for r in ranked] == [0.0, 1.0, 1.0, 2.0]
    assert [r.origin for r in ranked] == ["given", SEARCHED, SEARCHED, SEARCHED]


def test_one_device_has_one_placement() -> None:
    costs = surrogate(problem(tables(3), 1))
    (only,) = candidates(seeds(costs.loads).values(), costs, QUICK)
    assert only == (Placed(Split.TABLE, (0,)),) * 3


# Greedy placements by hand, random ones that fit, and one sentence where nothing does.

OWN = (Table("a", 1000, 8, pooling=1), Table("b", 900, 8, pooling=9), Table("c", 800, 8, pooling=5),
       Table("d", 700, 8, pooling=4))  # fmt: skip


def _ranks(placement: tuple[Placed, ...]) -> list[int]:
    assert all(placed.split is Split.TABLE for placed in placement)
    return [placed.ranks[0] for placed in placement]


def test_by_size_and_by_lookups_by_hand() -> None:
    """Sizes 1000 | 900, 800 to the 900, 700 to the 1000; lookups b | c, d to c (4 + 5 = 9), a to the first."""
    loads = Loads(problem(OWN, 2))
    assert _ranks(greedy(placement_search.size_weights(loads), loads)) == [0, 1, 1, 0]
    assert _ranks(greedy(placement_search.lookup_weights(loads), loads)) == [0, 0, 1, 1]


def test_a_table_without_slack_is_divided_by_rows() -> None:
    """Room for 1.2 MB per device: a table of 2 MB is divided, the small one is not."""
    own = (Table("large", 62_500, 8), Table("small", 1000, 8))
    tight = problem(own, 2, capacity_bytes=1.2e6)
    result = greedy(placement_search.size_weights(Loads(tight)), Loads(tight))
    assert result == (Placed(Split.ROW, (0, 1)), Placed(Split.TABLE, (0,)))


def test_what_fits_nowhere_is_refused_in_one_sentence() -> None:
    loads = Loads(problem(OWN, 2, capacity_bytes=0.0))
    with pytest.raises(InputError, match=r"4 tables with sgd take .* GiB per device even if"):
        greedy(placement_search.size_weights(loads), loads)
    with pytest.raises(InputError, match="more devices"):
        placement_search.by_rows(loads)


def test_random_placements_fit_and_are_those_of_the_seed() -> None:
    own = tables(8)
    need = max(t.rows for t in own) * 256.0
    loads = Loads(problem(own, 4, capacity_bytes=1.1 * need))
    result, again, other = (placement_search.random_placements(loads, 5, seed=seed) for seed in (1, 1, 2))
    assert result == again != other
    assert len(result) == 5
    for placement in result:
        used = np.bincount(_ranks(placement), [t.rows * 256.0 for t in own], 4)
        assert used.max() <= 1.1 * need


def test_ways_to_hold_a_table() -> None:
    requested = problem((Table("a", 6, 64), Table("b", 100, 64)), 16)
    assert ways(requested, requested.tables[0]) == (
        (Split.TABLE, 1), *((Split.COLUMN, n) for n in (2, 4, 8, 16)), (Split.REPLICATED, 16)
    )  # fmt: skip
    assert [n for split, n in ways(requested, requested.tables[1]) if split is Split.ROW] == [8, 16]
    assert ways(problem(OWN, 1), OWN[0]) == ((Split.TABLE, 1),)
