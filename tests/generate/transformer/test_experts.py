"""Layers with experts: parameters, FLOPs, messages by hand; loads."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnnperf.generate import Schedule, Sharded, Sharding, TransformerPlan, build_graph_of, drawn_graphs, rank_tensors
from gnnperf.generate.transformer.block import Experts
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.memory import misplaced_groups
from gnnperf.generate.transformer.plan import Parallelism, Recompute, Reduction
from gnnperf.generate.transformer.routing import chosen_shares, drawn_loads, with_load
from gnnperf.generate.transformer.sizes import expert_layer_parameters, stage_count
from tests.generate.transformer.plans import product_flops, transfers
from tests.generate.transformer.test_block import LLAMA, MODEL, llama

X = MODEL.sequence * MODEL.hidden * 2.0  # bytes of a micro-batch's activations


def mixture(ways: Parallelism = Parallelism(), batch: int = 1, **changes: Any) -> TransformerPlan:  # noqa: B008
    experts = Experts(**{"count": 8, "top_k": 2, **changes})
    schedule = Schedule(batch * ways.data, 1, recompute=Recompute.NONE)
    return TransformerPlan("mixture", MODEL, ways, schedule, LLAMA, experts)


def test_parameters_by_hand() -> None:
    """Every expert has an MLP's three matrices; the router has a column for each; a rank holds a part of them."""
    h, width = MODEL.hidden, 768
    layer = expert_layer_parameters(mixture(Parallelism(data=4, expert=4)))
    assert layer.expert == 2 * 3 * h * width
    assert layer.shared == 3 * h * h + 2 * h + 8 * h
    assert expert_layer_parameters(mixture(width=256)).expert == 8 * 3 * h * 256


def test_every_second_layer() -> None:
    plan = mixture(every=2)
    assert [plan.has_experts(layer) for layer in range(4)] == [False, True, False, True]
    dense, all_of_them = stage_count(llama(), 0), stage_count(mixture(), 0)
    assert stage_count(plan, 0).total == (dense.total + all_of_them.total) / 2


@pytest.mark.parametrize("expert", [1, 2, 8])
def test_flops_of_products_are_six_per_active_parameter_and_token(expert: int) -> None:
    """Of eight experts two multiply a token, wherever they are."""
    h, tokens = MODEL.hidden, MODEL.sequence
    plan = mixture(Parallelism(data=8, expert=expert))
    layer = 3 * h * h + 8 * h + 2 * 3 * h * 768
    assert product_flops(build_plan(plan)) == pytest.approx(6.0 * tokens * (4 * layer + 1024 * h), rel=1e-12)


def test_two_exchanges_forward_and_two_backward() -> None:
    """tokens x top_k x hidden x 2 bytes each, and once more forward where the layer is computed again."""
    ways = Parallelism(data=8, expert=4)
    message = ("all_to_all", 2 * X, 4)
    assert transfers(build_plan(mixture(ways)))[message] == 4 * 4
    again = replace(mixture(ways), schedule=replace(mixture(ways).schedule, recompute=Recompute.FULL))
    assert transfers(build_plan(again))[message] == 4 * 6
    assert transfers(build_plan(mixture(ways, every=2)))[message] == 2 * 4


def test_a_capacity_pads_what_is_sent_and_without_one_counts_are_gathered_first() -> None:
    """Eight experts, each ceil(1.3 x 128 x 2 / 8) = 42 rows of a rank; no counts are exchanged."""
    ways, counts = Parallelism(data=8, expert=4), ("all_gather", 8 * 8.0, 4)
    result = transfers(build_plan(mixture(ways, capacity_factor=1.3)))
    rows = 8 * math.ceil(1.3 * 128 * 2 / 8)
    assert result["all_to_all", rows * MODEL.hidden * 2.0, 4] == 16
    assert not any(size == 8 * 8.0 for _, size, _ in result)
    assert transfers(build_plan(mixture(ways)))[counts] == 4


def test_gradients_of_experts_are_summed_over_replicas_that_hold_the_same() -> None:
    plan = mixture(Parallelism(data=8, expert=4))
    count, result = stage_count(plan, 0), transfers(build_plan(plan))
    assert result["all_reduce", count.shared * 2.0, 8] == 1
    assert result["all_reduce", count.expert * 2.0, 2] == 1
    on_all = transfers(build_plan(mixture(Parallelism(data=8, expert=8))))  # summed by none
    assert not any(kind == "all_reduce" and n == 1 for kind, _, n in on_all)


def test_parts_of_experts_lie_over_their_own_replicas() -> None:
    plan = replace(mixture(Parallelism(data=8, expert=4)), sharding=Sharding(Sharded.PARAMETERS))
    layer, result = expert_layer_parameters(plan), transfers(build_plan(plan))
    assert result["all_gather", layer.shared / 8 * 2.0, 8] == 2 * 4
    assert result["all_gather", layer.expert / 2 * 2.0, 2] == 2 * 4
    assert result["reduce_scatter", layer.expert * 2.0, 2] == 4


def test_buckets_hold_experts_apart() -> None:
    plan = mixture(Parallelism(data=8, expert=4))
    plan = replace(plan, schedule=replace(plan.schedule, reduction=Reduction.BUCKETS, bucket_bytes=1.0))
    result, layer = transfers(build_plan(plan)), expert_layer_parameters(plan)
    assert result["all_reduce", layer.shared * 2.0, 8] == 4
    assert result["all_reduce", layer.expert * 2.0, 2] == 4


@pytest.mark.parametrize("load", [1.0, 1.37, 4.0])
def test_the_busiest_rank_makes_all_wait(load: float) -> None:
    """Rows, and with them messages and products, grow by the load; products have a multiple of 8 rows."""
    ways = Parallelism(data=8, expert=8)
    even, uneven = mixture(ways, imbalance=1.0), mixture(ways, imbalance=load)
    rows = math.ceil(2 * MODEL.sequence * load)
    assert transfers(build_plan(uneven))["all_to_all", rows * MODEL.hidden * 2.0, 8] == 16
    experts = 6.0 * 3 * MODEL.hidden * 768 * 4
    difference = product_flops(build_plan(uneven)) - product_flops(build_plan(even))
    assert difference == pytest.approx(experts * (math.ceil(rows / 8) * 8 - 2 * MODEL.sequence), abs=1.0)


@pytest.mark.parametrize(("changes", "stated"), [({}, 1), ({"imbalance": 1.0}, 0), ({"capacity_factor": 1.0}, 0)])
def test_an_even_load_that_no_one_stated_is_stated(changes: dict[str, Any], stated: int) -> None:
    assert sum("experts.imbalance" in sentence for sentence in build_plan(mixture(**changes)).warnings) == stated


def test_shares_of_skewed_routing_by_hand() -> None:
    """One expert of three: i^-1. Two of three with weights 6, 3, 2: 1 - P(neither draw is it)."""
    assert chosen_shares(3, 1, 1.0) == pytest.approx(np.array([6, 3, 2]) / 11)
    first, second = 6 / 11 + 3 / 11 * 6 / 8 + 2 / 11 * 6 / 9, 3 / 11 + 6 / 11 * 3 / 5 + 2 / 11 * 3 / 9
    assert chosen_shares(3, 2, 1.0) == pytest.approx([first, second, 2 - first - second], abs=0.03)
    assert chosen_shares(8, 2, 0.0) == pytest.approx([1 / 4] * 8)
    assert chosen_shares(3, 3, 1.0) == pytest.approx([1.0] * 3)


def test_drawn_steps_have_the_load_of_the_busiest_rank() -> None:
    """Two ranks of one expert each: the popular one gets 2 / (1 + 2^-skew) of the mean."""
    ways = Parallelism(data=2, expert=2)
    assert np.mean(drawn_loads(mixture(ways, count=2, top_k=1, skew=1.0))) == pytest.approx(4 / 3, abs=0.02)
    assert 1.0 < np.mean(drawn_loads(mixture(ways, count=2, top_k=1, skew=0.0))) < 1.1
    assert drawn_loads(mixture(Parallelism(data=2), skew=2.0)) == (1.0,)  # one rank has all experts


def test_a_skewed_plan_is_that_of_the_median_load_and_holds_the_largest() -> None:
    ways = Parallelism(data=8, expert=8)
    plan = mixture(ways, skew=1.0)
    loads, sizes = drawn_loads(plan), [product_flops(graph) for graph in drawn_graphs(plan)]
    assert product_flops(build_graph_of(plan)) == sizes[10] == product_flops(build_plan(with_load(plan, loads[10])))
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    assert rank_tensors(plan) == rank_tensors(mixture(ways, imbalance=loads[-1]))


def test_tensor_ranks_route_their_part_of_the_sequence() -> None:
    """Half the tokens each; what arrives is gathered from the neighbor and the sums are scattered."""
    result = transfers(build_plan(mixture(Parallelism(tensor=2, data=4, expert=4, sequence=True))))
    assert result["all_to_all", X, 4] == 16
    assert result["reduce_scatter", 2 * X, 2] == 4 * 2


def test_groups_of_experts_that_leave_their_machine_are_named() -> None:
    plan = mixture(Parallelism(tensor=2, data=8, expert=4, sequence=True))
    assert any("expert" in sentence for sentence in misplaced_groups(plan, 6))
