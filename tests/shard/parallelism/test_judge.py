"""The judge: the schedule of the graph; of long steps, two short ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnnperf.generate import Parallelism, Pipeline, Recompute, Schedule, Sharded, Sharding, TransformerPlan
from gnnperf.shard.parallelism import judge as module
from gnnperf.shard.parallelism.judge import judged, layer_passes, with_micro_batches
from tests.generate.transformer.plans import step_us
from tests.shard.parallelism.plans import base, cluster


def _plan(order: Pipeline, count: int) -> TransformerPlan:
    stages, chunks = 2, 2 if order.has_chunks else 1
    schedule = Schedule(count, 1, order, chunks, Recompute.NONE)
    return replace(base(), parallelism=Parallelism(pipeline=stages), schedule=schedule)


@pytest.mark.parametrize("order", list(Pipeline))
def test_a_long_step_is_extended_by_its_period(order: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan(order, 24)
    whole = judged(plan, cluster())
    monkeypatch.setattr(module, "MOST_LAYER_PASSES", 1)
    extended = judged(plan, cluster())
    few = 2 * order.warm_up
    assert (whole.extended, whole.layer_passes) == (False, 4 * 24)
    assert (extended.extended, extended.layer_passes) == (True, 4 * 3 * few) == (True, layer_passes(plan))
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
