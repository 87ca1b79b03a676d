"""Sums over tables: changes, prices of the parts, memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.schema import NodeType
from gnnperf.generate.recommendation.build import build_recommendation
from gnnperf.generate.tables import Placed, Placement, Split
from gnnperf.shard.problem import ELEMENTS, INDICES, LOOKED_UP, MEMORY, SUMMED, UPDATED, Problem, on_ranks, ways
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


def _batched_us(requested: Problem, name: str, rank: int) -> float:
    nodes = build_recommendation(requested.plan).nodes
    here = (nodes["op_name"] == name) & (nodes["node_type"] == NodeType.COMPUTE) & (nodes["rank"] == rank)
    return float(AnalyticPredictor().latency_us(nodes[here.to_numpy()], requested.cluster).sum())


def test_loads_are_what_the_graph_is_predicted_to_take() -> None:
    state = COSTS.start(COSTS.problem.plan.placement)
    launch_us = COSTS.problem.cluster.device.launch_floor_us
    for rank in range(RANKS):
        looked_up = _batched_us(COSTS.problem, "planned::batched_lookup", rank)
        assert state.per_rank[LOOKED_UP][rank] == pytest.approx(looked_up - launch_us)


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
