"""Bounds are no longer than the graph's schedule, and near it; the search finds what judging every candidate finds."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gnnperf.core import InputError
from gnnperf.generate import (
    ContextExchange,
    Parallelism,
    Pipeline,
    Recompute,
    Schedule,
    Sharded,
    Sharding,
    TransformerPlan,
)
from gnnperf.generate.transformer.block import Experts
from gnnperf.generate.transformer.memory import held_bytes
from gnnperf.generate.transformer.plan import Transformer
from gnnperf.hardware import ClusterSpec, default_cluster, load_device
from gnnperf.shard import Effort, Problem, search_plans
from gnnperf.shard.parallelism import bound as bound_module
from gnnperf.shard.parallelism import search as module
from gnnperf.shard.parallelism.bound import bounds, judged, layer_passes, peak_bytes, with_micro_batches
from gnnperf.shard.parallelism.search import GIVEN, RANDOM, RULE
from gnnperf.shard.parallelism.space import LEAST_POSITIONS, candidates, settings_text
from tests.generate.transformer import test_block
from tests.generate.transformer.plans import step_us

LLAMA = replace(test_block.LLAMA, width=512)
MODEL = Transformer(layers=4, hidden=512, heads=4, sequence=512, vocabulary=1000, dtype="bfloat16")


def base(*, experts: bool = False, batch: int = 8) -> TransformerPlan:
    """A plan of eight devices."""
    some = Experts(4) if experts else None
    return TransformerPlan("small", MODEL, Parallelism(data=8), Schedule(batch, 1), LLAMA, some)


def cluster(count: int = 8) -> ClusterSpec:
    """Machines of four A100."""
    assert count >= 1
    return replace(default_cluster(load_device("a100_sxm_80gb")), ranks_per_node=4)


def _some(plan: TransformerPlan, number: int) -> list[TransformerPlan]:
    """As many of each order of passes, with context ranks or without."""
    plans = candidates(plan, [8], [1, 2, 4])
    plans = [plans[i] for i in np.random.default_rng(0).permutation(len(plans))]
    own = [[p for p in plans if p.schedule.pipeline is order][:number] for order in Pipeline]
    return [one for each in own for one in each]


@pytest.mark.parametrize("experts", [False, True])
def test_no_judged_step_is_below_its_bound(experts: bool) -> None:
    plans = _some(base(experts=experts), 1)
    for plan, bound in zip(plans, bounds(plans, cluster()), strict=True):
        step_us = judged(plan, cluster()).step_us
        assert 0.0 < bound.step_us <= step_us * (1 + 1e-9), settings_text(plan)


@pytest.mark.parametrize("order", [Pipeline.ONE_F_ONE_B, Pipeline.INTERLEAVED, Pipeline.ZB_H1])
def test_the_bound_of_a_large_pipeline_is_within_five_percent(order: Pipeline) -> None:
    large = replace(base(batch=16), model=replace(base().model, hidden=4096, heads=32, sequence=4096))
    plans = [p for p in candidates(large, [2]) if p.parallelism.pipeline == 2 and p.schedule.pipeline is order]
    plan = max(plans, key=lambda p: p.num_micro_batches)
    (bound,) = bounds([plan], cluster())
    assert 0.95 < bound.step_us / judged(plan, cluster()).step_us <= 1.0
    parts = bound.kernels_us + bound.transfers_us + bound.bubble_us
    assert parts == pytest.approx(bound.step_us)


@pytest.mark.parametrize("order", list(Pipeline))
def test_a_long_step_is_bounded_without_placing_every_pass(order: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage's way in, work and way out: no more than all passes placed, and near to it."""
    plans = [p for p in candidates(base(batch=64), [4]) if p.schedule.pipeline is order and p.parallelism.pipeline == 4
             and p.schedule.micro_batch == 1]  # fmt: skip
    whole = [bound.step_us for bound in bounds(plans, cluster())]
    monkeypatch.setattr(bound_module, "MOST_PASSES", 200)
    short = [bound.step_us for bound in bounds(plans, cluster())]
    assert all(0.9 * a < b <= a * (1 + 1e-9) for a, b in zip(whole, short, strict=True))


def test_a_stage_that_waits_has_a_bubble() -> None:
    plans = candidates(base(), [4])
    alone = next(p for p in plans if p.parallelism.data == 4)
    piped = next(p for p in plans if p.parallelism.pipeline == 4 and p.schedule.pipeline is Pipeline.GPIPE)
    first, second = bounds([alone, piped], cluster())
    assert first.bubble_us == pytest.approx(0.0, abs=1e-6)
    assert second.bubble_us > 0.3 * second.kernels_us  # 3 of 8 micro-batches, and the ends of the model


@pytest.mark.parametrize("experts", [False, True])
def test_the_closed_form_of_memory_is_below_the_account_of_tensors(experts: bool) -> None:
    for plan in _some(base(experts=experts), 6):
        assert held_bytes(plan) <= 1.001 * peak_bytes(plan), settings_text(plan)


# The judge: the schedule of the graph; of long steps, two short ones.


def _plan(order: Pipeline, count: int) -> TransformerPlan:
    stages, chunks = 2, 2 if order.allows(2) else 1
    schedule = Schedule(count, 1, order, chunks, Recompute.NONE)
    return replace(base(), parallelism=Parallelism(pipeline=stages), schedule=schedule)


@pytest.mark.parametrize("order", list(Pipeline))
def test_a_long_step_is_extended_by_its_period(order: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan(order, 24)
    whole = judged(plan, cluster())
    monkeypatch.setattr(bound_module, "MOST_LAYER_PASSES", 1)
    extended = judged(plan, cluster())
    few = 2 * order.warm_up
    assert (whole.extended, extended.extended) == (False, True)
    assert layer_passes(plan) == 4 * 3 * few
    assert extended.step_us == pytest.approx(whole.step_us, rel=2e-3)


def test_other_micro_batches_change_the_batch_only() -> None:
    plan = replace(base(), sharding=Sharding(Sharded.OPTIMIZER))
    assert with_micro_batches(plan, 3).schedule.global_batch == 24
    assert with_micro_batches(plan, 3).num_micro_batches == 3


def test_a_short_step_is_that_of_its_graph() -> None:
    from gnnperf.generate import build_graph_of
    from gnnperf.hardware import default_cluster, load_device

    plan = replace(base(), parallelism=Parallelism(tensor=2), schedule=Schedule(2, 1))
    same = judged(plan, default_cluster(load_device("a100_sxm_80gb")))
    assert same.step_us == pytest.approx(step_us(build_graph_of(plan)))


def test_every_way_to_divide_two_devices_by_hand() -> None:
    """Four layers, four heads with two of keys, eight samples.

    tensor 2         micro-batches 1 2 4 8, sequence parallel or not, 3 kinds of recomputation          4 x 2 x 3
    data 2           micro-batches 1 2 4, 5 kinds of sharding, of which fsdp recomputes by layers       3 x 5 x 3
    pipeline 2       micro-batches 1 2 4 8; gpipe, 1f1b, zb_h1, zb_h2: 3 kinds; interleaved and breadth-first in
                     2 chunks of one layer: 2 kinds, interleaved not with one micro-batch       4 x 4 x 3 + 7 x 2
                     zb_v and dualpipe_v in 2 chunks of one layer: 2 kinds                                 2 x 4 x 2
                     ends as layers: six in 2 stages or 2 x 3 chunks, none or all computed again   4 x 4 x 2 + 7 x 2
    """
    plans = candidates(replace(base(), parallelism=replace(base().parallelism, data=2)), [2])
    ways = Counter((p.parallelism.tensor, p.parallelism.pipeline, p.parallelism.data) for p in plans)
    assert ways == {(2, 1, 1): 24, (1, 1, 2): 45, (1, 2, 1): 62 + 16 + 46}
    assert len(set(map(repr, plans))) == len(plans)


def test_model_and_global_batch_stay() -> None:
    plans = candidates(base(), [8, 4])
    assert {plan.parallelism.world_size for plan in plans} == {4, 8}
    assert {(plan.model, plan.block, plan.schedule.global_batch) for plan in plans} == {(base().model, base().block, 8)}


def test_the_space_has_every_order_sharding_and_recomputation() -> None:
    plans = candidates(base(experts=True), [8])
    assert {plan.schedule.pipeline for plan in plans} == set(Pipeline) - {Pipeline.NO_FLUSH}
    assert {plan.sharding.state for plan in plans} == set(Sharded)
    assert {plan.schedule.recompute for plan in plans} == {Recompute.NONE, Recompute.FULL}  # flash keeps no scores
    assert {plan.parallelism.expert for plan in plans} == {1, 2, 4}


def test_a_number_of_devices_that_divides_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="no way to divide the model over 7 devices"):
        candidates(base(), [7])


def test_context_ranks_are_those_requested_or_those_of_long_sequences() -> None:
    plans = candidates(base(), [8], [4])
    assert all("cp 4 " in settings_text(plan) for plan in plans)
    long = replace(base(), model=replace(base().model, sequence=2 * LEAST_POSITIONS))
    ways = {(p.parallelism.context, p.parallelism.context_exchange) for p in candidates(long, [8])}
    assert ways == {(1, ContextExchange.RING), *((2, kind) for kind in ContextExchange)}


def test_the_text_of_a_candidate_names_what_differs() -> None:
    plan = replace(base(), schedule=Schedule(8, 1, Pipeline.ONE_F_ONE_B, recompute=Recompute.NONE))
    assert settings_text(plan) == "tp 1 pp 1 dp 8 mb 1 recompute none"
    texts = [settings_text(plan) for plan in candidates(base(experts=True), [8])]
    assert len(set(texts)) == len(texts)
    assert "tp 2 pp 2 dp 2 ep 2 mb 1 sp zero1 interleaved x2 recompute full" in texts


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
