"""The search finds what judging every candidate finds, and states what it has not proven."""

from dataclasses import replace
from functools import cache

import pytest

from gnnperf.core import InputError
from gnnperf.generate import TransformerPlan
from gnnperf.shard import Effort, Problem, search_plans
from gnnperf.shard.parallelism import search as module
from gnnperf.shard.parallelism.bound import judged, peak_bytes
from gnnperf.shard.parallelism.search import GIVEN, RANDOM, RULE
from gnnperf.shard.parallelism.space import candidates
from tests.shard.parallelism.plans import base, cluster

MIB = 1 << 20
PLENTY = 64.0 * 1024 * MIB
ALL = Effort(judged=10_000, layer_passes=10**9)
STEP = cache(lambda plan: judged(plan, cluster()))  # all tests judge on one cluster


@pytest.fixture(autouse=True)
def _judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "judged", lambda plan, cluster: STEP(plan))


def _few(*, experts: bool = False) -> list[TransformerPlan]:
    return candidates(base(experts=experts), [4])[::80]


@pytest.mark.parametrize(("experts", "capacity_bytes"), [(False, PLENTY), (False, 100.0 * MIB), (True, PLENTY)])
def test_the_best_of_a_small_space_is_that_of_judging_all(experts: bool, capacity_bytes: float) -> None:
    plans = _few(experts=experts)
    steps = [STEP(plan).step_us for plan in plans if peak_bytes(plan) <= capacity_bytes]
    assert 0 < len(steps) <= len(plans)
    outcome = search_plans(Problem(plans, cluster, capacity_bytes), ALL)
    assert outcome.options[0].step_us == min(steps)
    assert (outcome.gap, outcome.num_plans) == (0.0, len(plans))
    assert len(outcome.options) < len(steps)  # bounds have spared some
    for one in outcome.options:
        assert sum(one.parts_us.values()) == pytest.approx(one.step_us)
        assert one.peak_bytes <= capacity_bytes
    assert [one.step_us for one in outcome.options] == sorted(one.step_us for one in outcome.options)
    memory = [one.peak_bytes for one in outcome.front]  # of options that no other one beats
    assert outcome.front[0] is outcome.options[0]
    assert memory == sorted(memory, reverse=True) and len(set(memory)) == len(memory)
    assert len(memory) > 1 or capacity_bytes < PLENTY


def test_a_search_that_may_not_judge_enough_states_the_gap() -> None:
    outcome = search_plans(Problem(_few(), cluster, PLENTY), Effort(judged=1, layer_passes=10**9, runners=0))
    assert outcome.next_bound is not None
    assert outcome.gap == pytest.approx(max(0.0, 1.0 - outcome.next_bound / outcome.best))


def test_baselines_are_judged_as_the_best_plans_are() -> None:
    given = base()
    outcome = search_plans(Problem(candidates(given, [8])[::120], cluster, PLENTY), Effort(judged=3, runners=0), given)
    assert set(outcome.baselines) >= {RANDOM, GIVEN}
    assert outcome.baselines[GIVEN].step_us == STEP(given).step_us
    assert all(outcome.best <= one.step_us for one in outcome.baselines.values())


def test_the_rule_takes_the_fewest_ranks_per_replica_that_fit() -> None:
    """Narayanan et al. 2021: with space for all of it, one device holds the model."""
    plans = [p for p in candidates(base(), [8]) if p.schedule.micro_batch == 1][::2]
    outcome = search_plans(Problem(plans, cluster, PLENTY), Effort(judged=1, runners=0))
    ways = outcome.baselines[RULE].plan.parallelism
    assert (ways.tensor, ways.pipeline, ways.data) == (1, 1, 8)


def test_cost_weighs_devices() -> None:
    """Two devices are slower than four and cost less."""
    large = replace(base(), model=replace(base().model, layers=2, hidden=1024, sequence=2048))
    plans = [p for p in candidates(large, [2, 4]) if p.parallelism.data == p.parallelism.world_size][::3]
    by_step, by_cost = (
        search_plans(Problem(plans, cluster, PLENTY, weight), ALL).options[0].plan.parallelism.world_size
        for weight in (lambda plan: 1.0, lambda plan: float(plan.parallelism.world_size))
    )
    assert (by_step, by_cost) == (4, 2)


def test_nothing_that_fits_is_one_message() -> None:
    with pytest.raises(InputError, match=r"none of .* candidates fits: the smallest takes"):
        search_plans(Problem(_few(), cluster, 1.0 * MIB), ALL)
