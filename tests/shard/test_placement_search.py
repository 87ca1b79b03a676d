"""Placements: the search against all of small problems, sums over tables, prices of the parts, memory."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError, NodeType
from gnnperf.generate.recommendation.build import build_recommendation
from gnnperf.generate.recommendation.plan import Placed, Placement, RecommendationPlan, Recommender, Split, Table
from gnnperf.generate.recommendation.read import largest_first
from gnnperf.hardware import default_cluster, load_device
from gnnperf.schedule import schedule_with_contention
from gnnperf.shard import placement_search
from gnnperf.shard.placement_search import SEARCHED, Effort, candidates, greedy, random_placements, rank, seeds
from gnnperf.shard.problem import ELEMENTS, INDICES, LOOKED_UP, MEMORY, SUMMED, UPDATED, Loads, Problem, on_ranks, ways
from gnnperf.shard.shard_result import DENSE, awaited_ranks, judged
from gnnperf.shard.surrogate_cost import Surrogate, surrogate


def tables(count: int, seed: int = 0, dim: int = 64) -> tuple[Table, ...]:
    """Of 10^3 to 10^6 rows, 1 to 30 indices, some hot."""
    rng = np.random.default_rng(seed)
    return tuple(Table(f"t{i}", int(10 ** rng.uniform(3, 6)), dim, float(rng.integers(1, 31)), float(rng.uniform(1, 6)))
                 for i in range(count))  # fmt: skip


def problem(own: tuple[Table, ...], ranks: int, *, batch: int = 16384, capacity_bytes: float | None = None) -> Problem:
    """On A100s, or such with another memory, of which tables get so much."""
    cluster = default_cluster(load_device("a100_sxm_80gb"))
    model = Recommender(own, (128, own[0].dim), (128, 1))
    plan = RecommendationPlan("small", model, batch, ranks, largest_first(own, ranks))
    result = Problem(plan, cluster)
    if capacity_bytes is None:
        return result
    less_bytes = (result.capacity_bytes - capacity_bytes) / (1.0 - result.reserve_share)
    device = replace(cluster.device, memory_bytes=cluster.device.memory_bytes - less_bytes)
    return Problem(plan, replace(cluster, device=device))


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


RANKS = 4
COSTS = surrogate(problem(tables(6), RANKS))


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Of the six tables in any way that four ranks allow."""
    result = []
    for table in COSTS.problem.tables:
        split, number = draw(st.sampled_from(ways(COSTS.problem, table)))
        ranks = draw(st.permutations(range(RANKS)))
        result.append(on_ranks(split, ranks[:number]))
    return tuple(result)


@settings(max_examples=50, deadline=None)
@given(placements(), placements())
def test_a_change_gives_the_sums_of_its_result(before: Placement, after: Placement) -> None:
    changes = {i: placed for i, placed in enumerate(after) if placed != before[i]}
    changed, fresh = COSTS.changed(COSTS.start(before), changes), COSTS.start(after)
    assert changed.placement == after
    np.testing.assert_allclose(changed.per_rank, fresh.per_rank, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(changed.shared, fresh.shared, rtol=1e-9, atol=1e-6)
    assert COSTS.value(changed) == pytest.approx(COSTS.value(fresh))


def test_sums_of_whole_tables_by_hand() -> None:
    state = COSTS.start(tuple(Placed(Split.TABLE, (i % 2,)) for i in range(6)))
    assert state.per_rank[ELEMENTS].tolist() == [3 * 64, 3 * 64, 0, 0]
    pooling = [table.pooling for table in COSTS.problem.tables]
    assert state.per_rank[INDICES].tolist() == [sum(pooling[::2]), sum(pooling[1::2]), 0, 0]
    rows = [table.rows for table in COSTS.problem.tables]
    assert state.per_rank[MEMORY].tolist() == [sum(rows[::2]) * 256.0, sum(rows[1::2]) * 256.0, 0, 0]
    assert state.shared.tolist() == [0, 0, 0]


def test_rows_over_all_ranks_are_summed_and_copies_stay() -> None:
    rest = [Placed(Split.TABLE, (0,))] * 4
    rows, copy = Placed(Split.ROW, (0, 1, 2, 3)), Placed(Split.REPLICATED, (0, 1, 2, 3))
    state = COSTS.start((rows, copy, *rest))
    assert state.shared[SUMMED] == 64
    assert state.per_rank[ELEMENTS][1:].tolist() == [0, 0, 0]
    assert state.per_rank[UPDATED][1] == pytest.approx(COSTS.loads.of(0, rows).per_rank[UPDATED])
    assert COSTS.loads.of(1, copy).per_rank[UPDATED] == 0.0


def test_loads_are_what_the_graph_is_predicted_to_take() -> None:
    state, cluster = COSTS.start(COSTS.problem.plan.placement), COSTS.problem.cluster
    nodes = build_recommendation(COSTS.problem.plan).nodes
    look_ups = (nodes["op_name"] == "planned::batched_lookup") & (nodes["node_type"] == NodeType.COMPUTE)
    for number in range(RANKS):
        own = nodes[(look_ups & (nodes["rank"] == number)).to_numpy()]
        looked_up = float(AnalyticPredictor().latency_us(own, cluster).sum())
        assert state.per_rank[LOOKED_UP][number] == pytest.approx(looked_up - cluster.device.launch_floor_us)


def test_what_does_not_fit_is_infinitely_slow() -> None:
    small = problem(tables(6), 2, capacity_bytes=1.5 * max(t.rows for t in tables(6)) * 256)
    costs = surrogate(small)
    on_one = costs.start(tuple(Placed(Split.TABLE, (0,)) for _ in range(6)))
    assert on_one.per_rank[MEMORY].max() > small.capacity_bytes
    assert costs.value(on_one)[0] == np.inf


def test_evenness_decides_between_equal_steps() -> None:
    crowded = COSTS.start(tuple(Placed(Split.TABLE, (0,)) for _ in range(6)))
    spread = COSTS.start(tuple(Placed(Split.TABLE, (i % RANKS,)) for i in range(6)))
    assert COSTS.value(crowded)[1] == pytest.approx(2 * RANKS)  # all of work and of vectors on one of four
    assert 2.0 <= COSTS.value(spread)[1] < 2 * RANKS


def test_collectives_between_priced_sizes_and_none_of_one_rank() -> None:
    small, large = COSTS.collective_us("all_to_all", 1e6), COSTS.collective_us("all_to_all", 2e6)
    assert 0 < small < large
    assert COSTS.collective_us("all_to_all", 0.0) == 0.0
    isolated: Surrogate = surrogate(problem(tables(3), 1))
    assert isolated.collective_us("all_to_all", 1e9) == 0.0
    assert np.isfinite(isolated.value(isolated.start(isolated.problem.plan.placement))[0])


MANY = 16


def _all_ranks_us(requested: Problem, placement: Placement) -> float:
    graph = build_recommendation(requested.placed(placement))
    given = AnalyticPredictor().predict(graph, requested.cluster)
    assert given.isolated is not None
    return schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated).schedule.makespan_us


@pytest.mark.parametrize("batch", [2048, 131072])
def test_ranks_that_no_one_waits_for_change_nothing(batch: int) -> None:
    """Bound by the host, and bound by the devices."""
    costs = surrogate(problem(tables(12), MANY, batch=batch))
    spread = Placed(Split.ROW, tuple(range(MANY)))
    for placement in random_placements(costs.loads, 3, seed=0):
        for own in (placement, (spread, *placement[1:])):
            state = costs.start(own)
            assert len(awaited_ranks(state)) <= 6
            assert judged(costs.problem, state).step_us == pytest.approx(_all_ranks_us(costs.problem, own), rel=1e-9)


def test_what_lies_on_the_critical_path_is_no_longer_than_the_step() -> None:
    costs = surrogate(problem(tables(12), 4, batch=131072))
    given = judged(costs.problem, costs.start(costs.problem.plan.placement))
    total = sum(given.critical_us.values())
    assert 0.8 * given.step_us < total <= given.step_us * (1 + 1e-9)
    assert given.critical_us[DENSE] > 0


def test_the_judge_agrees_with_the_sums_about_which_is_faster() -> None:
    costs = surrogate(problem(tables(16), 4, batch=262144))
    crowded: Placement = tuple(Placed(Split.TABLE, (i // 8,)) for i in range(16))
    spread: Placement = tuple(Placed(Split.TABLE, (i % 4,)) for i in range(16))
    steps = [judged(costs.problem, costs.start(p)).step_us for p in (crowded, spread)]
    sums = [costs.value(costs.start(p))[0] for p in (crowded, spread)]
    assert steps[0] > steps[1] and sums[0] > sums[1]
