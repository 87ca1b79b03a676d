"""Sums over tables: changes, prices of the parts, memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.schema import NodeType
from gnnperf.generate.recommendation.build import build_recommendation
from gnnperf.generate.recommendation.plan import Placed, Placement, Split
from gnnperf.schedule import schedule_with_contention
from gnnperf.shard.placement_search import random_placements
from gnnperf.shard.problem import ELEMENTS, INDICES, LOOKED_UP, MEMORY, SUMMED, UPDATED, Problem, on_ranks, ways
from gnnperf.shard.shard_result import DENSE, awaited_ranks, judged
from gnnperf.shard.surrogate_cost import Surrogate, surrogate
from tests.shard.problems import problem, tables

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
    for rank in range(RANKS):
        own = nodes[(look_ups & (nodes["rank"] == rank)).to_numpy()]
        looked_up = float(AnalyticPredictor().latency_us(own, cluster).sum())
        assert state.per_rank[LOOKED_UP][rank] == pytest.approx(looked_up - cluster.device.launch_floor_us)


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


# The judge: fewer ranks give the step of all ranks, and the critical path adds up.

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
