"""Sharded data parallelism: bytes against the papers' formulas, time against the picture of its streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType
from gnnperf.generate.transformer.block import Block
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.plan import Recompute, Reduction, Sharded, Sharding, TransformerPlan
from gnnperf.generate.transformer.sizes import (
    embedding_parameters,
    first_parameters,
    head_parameters,
    layer_parameters,
    owned_count,
    stage_count,
)
from tests.generate.transformer.graphs import product_flops, sent_bytes, transfers, with_times
from tests.generate.transformer.plans import small

REPLICAS = 8
UNTIED = Block(tied_embedding=False)
SCALAR = 2 * (REPLICAS - 1) / REPLICAS * 4.0  # the norm's square, summed over replicas


def sharded(state: Sharded, batch: int = 1, data: int = REPLICAS, **settings: Any) -> TransformerPlan:
    block = settings.pop("block", Block())
    reshard = settings.pop("reshard_after_forward", True)
    return replace(small(data=data, batch=batch, **settings), sharding=Sharding(state, reshard), block=block)


def volume(plan: TransformerPlan) -> float:
    """Bytes that a rank sends, over the parameters' bytes and (n - 1) / n."""
    parameters = stage_count(plan, 0).total * 2.0 * (REPLICAS - 1) / REPLICAS
    scalars = SCALAR if plan.sharding.shards_update else 0.0
    return (sent_bytes(build_plan(plan)) - scalars) / parameters


def _root_share(plan: TransformerPlan) -> float:
    """Of the parameters, those of the ends, which are gathered once only: they stay from forward to backward."""
    ends = head_parameters(plan) + (first_parameters(plan) if plan.block.tied_embedding else 0)
    return ends / stage_count(plan, 0).total


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        *((sharded(state), 2.0) for state in (Sharded.NOTHING, Sharded.OPTIMIZER, Sharded.GRADIENTS)),
        (sharded(Sharded.PARAMETERS, block=UNTIED), 3 - _root_share(sharded(Sharded.PARAMETERS, block=UNTIED))),
        (sharded(Sharded.PARAMETERS, reshard_after_forward=False), 2.0),
        # Of m micro-batches: m reduce-scatters, and one gather (gradients) or two of each (parameters).
        (sharded(Sharded.OPTIMIZER, batch=3), 2.0),
        (sharded(Sharded.GRADIENTS, batch=3), 3 + 1),
        (sharded(Sharded.PARAMETERS, batch=3), 3 * (3 - _root_share(small()))),
    ],
)
def test_the_volume_is_twice_or_three_times_the_parameters(plan: TransformerPlan, expected: float) -> None:
    """Rajbhandari et al. 2020, sections 7.2.1 and 7.2.2."""
    assert volume(plan) == pytest.approx(expected, rel=1e-5)  # parts are padded


def test_messages_of_sharded_parameters_by_hand() -> None:
    """Four layers gathered twice, a tied embedding with positions and last norm once; each reduce-scattered once."""
    plan = sharded(Sharded.PARAMETERS)
    layer, root = layer_parameters(plan), first_parameters(plan) + head_parameters(plan)
    assert transfers(build_plan(plan)) == {
        ("all_gather", layer * 2.0 / REPLICAS, REPLICAS): 8,
        ("all_gather", root * 2.0 / REPLICAS, REPLICAS): 1,
        ("reduce_scatter", layer * 2.0, REPLICAS): 4,
        ("reduce_scatter", root * 2.0, REPLICAS): 1,
        ("all_reduce", 4.0, REPLICAS): 1,
    }


def test_buckets_of_a_sharded_optimizer_are_reduce_scattered() -> None:
    plan = sharded(Sharded.OPTIMIZER, reduction=Reduction.BUCKETS, bucket_bytes=1.0)
    result = transfers(build_plan(plan))
    assert result["reduce_scatter", layer_parameters(plan) * 2.0, REPLICAS] == 4
    assert sum(size * n for (kind, size, _), n in result.items() if kind == "reduce_scatter") == (
        stage_count(plan, 0).total * 2.0
    )


def test_a_rank_updates_its_part() -> None:
    plan = sharded(Sharded.OPTIMIZER)
    assert owned_count(plan, 0).total == -(-stage_count(plan, 0).total // REPLICAS)
    nodes = build_plan(plan).nodes
    adam = nodes[(nodes["op_name"] == "aten::_fused_adam_").to_numpy() & (nodes["node_type"] == "compute").to_numpy()]
    assert adam["input_dims"].tolist()[0].startswith(f"[[[{owned_count(plan, 0).total}]]")


def times(plan: TransformerPlan, layer_us: float) -> float:
    """Ten us for each layer, forward and backward; a layer's gather `layer_us`, others by their bytes."""
    ops = {"aten::_softmax": 10.0, "aten::_softmax_backward_data": 10.0}
    rate = layer_us / (layer_parameters(plan) * 2.0 / REPLICAS)
    return with_times(build_plan(plan), ops, {"all_gather": rate}, {})


def root_us(plan: TransformerPlan, layer_us: float) -> float:
    return layer_us * (first_parameters(plan) + head_parameters(plan)) / layer_parameters(plan)


@pytest.mark.parametrize(("gather_us", "rest_us"), [(8.0, 8.0 + 80.0), (12.0, 96.0 + 10.0)])
def test_gathers_hide_behind_layers_or_hold_them_back(gather_us: float, rest_us: float) -> None:
    """Shorter than layers: the embedding's and the first one's are waited for; then eight layers' work in a row.

    12 us each: forward one ends every 12 us from the embedding's on. The last layer's second gather begins when the
    fourth one has ended (48) and is done at 60; each one after that begins with a layer's backward pass: 72, 84, 96.
    """
    plan = sharded(Sharded.PARAMETERS, recompute=Recompute.NONE)
    assert times(plan, gather_us) == pytest.approx(root_us(plan, gather_us) + rest_us)


def test_reduce_scatters_lag_one_layer_behind() -> None:
    """25 us each, layers 10: the second layer's gradients are copied when those of the first are away, and so on."""
    plan = sharded(Sharded.GRADIENTS, recompute=Recompute.NONE)
    rate = 25.0 / (layer_parameters(plan) * 2.0)
    graph = build_plan(plan)
    after_us = rate * 2.0 * (first_parameters(plan) + head_parameters(plan))
    result = with_times(graph, {"aten::_softmax_backward_data": 10.0}, {"reduce_scatter": rate}, {})
    assert result == pytest.approx(10.0 + 4 * 25.0 + after_us, rel=1e-6)


def test_what_is_computed_does_not_depend_on_where_parameters_lie() -> None:
    flops = {state: product_flops(build_plan(sharded(state, batch=2))) for state in Sharded}
    assert len(set(flops.values())) == 1


def test_the_later_stages_add_nothing_up_in_full() -> None:
    """Gradients of one micro-batch are added to none; of the next ones in parts, on the stream of the sums."""

    def added(plan: TransformerPlan) -> list[str]:
        nodes = build_plan(plan).nodes
        which = (nodes["op_name"] == "aten::add_").to_numpy() & (nodes["node_type"] == NodeType.COMPUTE).to_numpy()
        return sorted(set(nodes["input_dims"][which]))

    part = -(-layer_parameters(small()) // REPLICAS)
    assert added(sharded(Sharded.PARAMETERS)) == []
    assert f"[[{part}], [{part}]]" in added(sharded(Sharded.PARAMETERS, batch=2))
    assert f"[[{layer_parameters(small())}], [{layer_parameters(small())}]]" not in added(sharded(Sharded.GRADIENTS, 2))


def test_an_untied_embedding_is_not_summed_over_the_ends() -> None:
    plan = replace(small(pipeline=2), block=UNTIED)
    size = embedding_parameters(plan) * 2.0
    assert ("all_reduce", size, 2) in transfers(build_plan(small(pipeline=2)))
    assert ("all_reduce", size, 2) not in transfers(build_plan(plan))


@pytest.mark.parametrize(
    ("state", "settings", "key"),
    [
        (Sharded.PARAMETERS, {"pipeline": 2}, "parallelism.pipeline"),
        (Sharded.GRADIENTS, {"pipeline": 2}, "parallelism.pipeline"),
        (Sharded.OPTIMIZER, {"data": 1}, "parallelism.data"),
    ],
)
def test_what_does_not_go_together_is_refused(state: Sharded, settings: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError) as error:
        sharded(state, **settings)
    assert error.value.where == key
