"""Which candidates there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gnnperf.core import InputError
from gnnperf.generate import ContextExchange, Pipeline, Recompute, Schedule, Sharded
from gnnperf.shard.parallelism.space import LEAST_POSITIONS, candidates, settings_text
from tests.shard.parallelism.plans import base


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
    assert {plan.schedule.pipeline for plan in plans} == set(Pipeline)
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
