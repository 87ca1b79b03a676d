"""The search finds what judging every candidate finds, and says what it has not proven."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnnperf.core import InputError
from gnnperf.generate import TransformerPlan
from gnnperf.shard import Effort, Problem, search_plans
from gnnperf.shard.parallelism.judge import judged, peak_bytes
from gnnperf.shard.parallelism.search import GIVEN, RANDOM, RULE
from gnnperf.shard.parallelism.space import candidates
from tests.shard.parallelism.plans import base, cluster

MIB = 1 << 20
PLENTY = 64.0 * 1024 * MIB
ALL = Effort(judged=10_000, layer_passes=10**9)


def _few(*, experts: bool = False, every: int = 9) -> list[TransformerPlan]:
    return candidates(base(experts=experts), [4])[::every]


@pytest.mark.parametrize(("experts", "capacity_bytes"), [(False, PLENTY), (False, 100.0 * MIB), (True, PLENTY)])
def test_the_best_of_a_small_space_is_that_of_judging_all(experts: bool, capacity_bytes: float) -> None:
    plans = _few(experts=experts, every=40 if experts else 9)
    steps = {i: judged(plan, cluster()).step_us for i, plan in enumerate(plans)
             if peak_bytes(plan) <= capacity_bytes}  # fmt: skip
    assert 0 < len(steps) <= len(plans)
    outcome = search_plans(Problem(plans, cluster, capacity_bytes), ALL)
    assert outcome.options[0].step_us == pytest.approx(min(steps.values()), rel=1e-12)
    assert (outcome.gap, outcome.num_plans) == (0.0, len(plans))
    assert len(outcome.options) < len(steps)  # bounds have spared some


def test_parts_add_up_to_the_step_and_every_option_fits() -> None:
    outcome = search_plans(Problem(_few(), cluster, 100.0 * MIB), ALL)
    for one in outcome.options:
        assert sum(one.parts_us.values()) == pytest.approx(one.step_us)
        assert one.peak_bytes <= 100 * MIB
    assert [one.step_us for one in outcome.options] == sorted(one.step_us for one in outcome.options)


def test_no_option_of_the_front_is_beaten() -> None:
    outcome = search_plans(Problem(_few(), cluster, PLENTY), ALL)
    memory = [one.peak_bytes for one in outcome.front]
    assert outcome.front[0] is outcome.options[0]
    assert memory == sorted(memory, reverse=True) and len(set(memory)) == len(memory) > 1


def test_a_search_that_may_not_judge_enough_states_the_gap() -> None:
    outcome = search_plans(Problem(_few(), cluster, PLENTY), Effort(judged=1, layer_passes=10**9, runners=0))
    assert outcome.next_bound is not None
    assert outcome.gap == pytest.approx(max(0.0, 1.0 - outcome.next_bound / outcome.best))


def test_baselines_are_judged_as_the_best_plans_are() -> None:
    given = base()
    outcome = search_plans(Problem(candidates(given, [8])[::7], cluster, PLENTY), Effort(judged=40), given)
    assert set(outcome.baselines) >= {RANDOM, GIVEN}
    assert outcome.baselines[GIVEN].step_us == pytest.approx(judged(given, cluster()).step_us)
    assert all(outcome.best <= one.step_us for one in outcome.baselines.values())


def test_the_rule_takes_the_fewest_ranks_per_replica_that_fit() -> None:
    """Narayanan et al. 2021: with space for all of it, one device holds the model."""
    plans = [p for p in candidates(base(), [8]) if p.schedule.micro_batch == 1]
    outcome = search_plans(Problem(plans, cluster, PLENTY), Effort(judged=5))
    ways = outcome.baselines[RULE].plan.parallelism
    assert (ways.tensor, ways.pipeline, ways.data) == (1, 1, 8)


def test_cost_weighs_devices() -> None:
    """Two devices are slower than four and cost less."""
    large = replace(base(), model=replace(base().model, hidden=1024, sequence=2048))
    plans = [p for p in candidates(large, [2, 4]) if p.parallelism.data == p.parallelism.world_size]
    by_step, by_cost = (
        search_plans(Problem(plans, cluster, PLENTY, weight), ALL).options[0].plan.parallelism.world_size
        for weight in (lambda plan: 1.0, lambda plan: float(plan.parallelism.world_size))
    )
    assert (by_step, by_cost) == (4, 2)


def test_nothing_that_fits_is_one_message() -> None:
    with pytest.raises(InputError, match=r"none of .* candidates fits: the smallest takes"):
        search_plans(Problem(_few(), cluster, 1.0 * MIB), ALL)
