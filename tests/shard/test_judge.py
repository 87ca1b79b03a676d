"""The judge: fewer ranks give the step of all ranks, and the critical path adds up."""

from __future__ import annotations

import pytest

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.recommendation.build import build_recommendation
from gnnperf.generate.tables import Placed, Placement, Split
from gnnperf.schedule import schedule_with_contention
from gnnperf.shard.judge import DENSE, awaited_ranks, judged
from gnnperf.shard.problem import Problem
from gnnperf.shard.search import random_placements
from gnnperf.shard.surrogate_cost import surrogate
from tests.shard.problems import problem, tables

RANKS = 16


def _all_ranks_us(requested: Problem, placement: Placement) -> float:
    graph = build_recommendation(requested.placed(placement))
    given = AnalyticPredictor().predict(graph, requested.cluster)
    assert given.isolated is not None
    return schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated).schedule.makespan_us


@pytest.mark.parametrize("batch", [2048, 131072])
def test_ranks_that_no_one_waits_for_change_nothing(batch: int) -> None:
    """Bound by the host, and bound by the devices."""
    costs = surrogate(problem(tables(12), RANKS, batch=batch))
    spread = Placed(Split.ROW, tuple(range(RANKS)))
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
