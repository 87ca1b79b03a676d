"""Sharded data parallelism: bytes against the papers' formulas, time against the picture of its streams."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NodeType
from gnnperf.generate.transformer import sizes
from gnnperf.generate.transformer.activations import retained_bytes
from gnnperf.generate.transformer.block import Block
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.gradients import HOST_ADAM
from gnnperf.generate.transformer.items import FROM_STORAGE, TO_DEVICE, TO_HOST, TO_STORAGE, Offload, Store
from gnnperf.generate.transformer.plan import Parallelism, Recompute, Reduction, Sharded, Sharding, TransformerPlan
from gnnperf.generate.transformer.sizes import layer_parameters, owned_count, stage_count
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import default_cluster, load_device
from tests.generate.transformer.plans import MODEL, product_flops, sent_bytes, small, transfers, with_times
from tests.generate.transformer.test_block import llama

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
    ends = sizes.head_parameters(plan) + (sizes.first_parameters(plan) if plan.block.tied_embedding else 0)
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
    layer, root = layer_parameters(plan), sizes.first_parameters(plan) + sizes.head_parameters(plan)
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
    scattered = sum(size * n for (kind, size, _), n in result.items() if kind == "reduce_scatter")
    assert scattered == stage_count(plan, 0).total * 2.0


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


@pytest.mark.parametrize(("gather_us", "rest_us"), [(8.0, 8.0 + 80.0), (12.0, 96.0 + 10.0)])
def test_gathers_hide_behind_layers_or_hold_them_back(gather_us: float, rest_us: float) -> None:
    """Shorter than layers: the embedding's and the first one's are waited for; then eight layers' work in a row.

    12 us each: forward one ends every 12 us from the embedding's on. The last layer's second gather begins when the
    fourth one has ended (48) and is done at 60; each one after that begins with a layer's backward pass: 72, 84, 96.
    """
    plan = sharded(Sharded.PARAMETERS, recompute=Recompute.NONE)
    root = sizes.first_parameters(plan) + sizes.head_parameters(plan)
    assert times(plan, gather_us) == pytest.approx(gather_us * root / layer_parameters(plan) + rest_us)


def test_reduce_scatters_lag_one_layer_behind() -> None:
    """25 us each, layers 10: the second layer's gradients are copied when those of the first are away, and so on."""
    plan = sharded(Sharded.GRADIENTS, recompute=Recompute.NONE)
    rate = 25.0 / (layer_parameters(plan) * 2.0)
    graph = build_plan(plan)
    after_us = rate * 2.0 * (sizes.first_parameters(plan) + sizes.head_parameters(plan))
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
    size = sizes.embedding_parameters(plan) * 2.0
    assert ("all_reduce", size, 2) in transfers(build_plan(small(pipeline=2)))
    assert ("all_reduce", size, 2) not in transfers(build_plan(plan))


# Activations and optimizer state away from the device: bytes by hand, times against the pictures of their streams.

X = MODEL.sequence * MODEL.hidden * 2.0
LAYER = {"aten::_softmax": 10.0, "aten::_softmax_backward_data": 10.0}


def offloaded(offload: Offload, **settings: Any) -> TransformerPlan:
    sharding = settings.pop("sharding", Sharding())
    return replace(small(**{"batch": 1, **settings}), offload=offload, sharding=sharding)


def copies(graph: ExecutionGraph) -> dict[str, tuple[int, float]]:
    """Name of a copy -> how many, and their bytes."""
    nodes = graph.nodes[(graph.nodes["node_type"] == NodeType.MEMORY).to_numpy()]
    groups = nodes.groupby("event_name", observed=True)["bytes"]
    return {str(name): (len(sizes), float(sizes.sum())) for name, sizes in groups}


def test_a_layer_keeps_what_korthikanti_counts() -> None:
    """s b h (10 + 24 / t) + 5 a s^2 b / t bytes; 34 s b h without scores; its input where all is computed again."""
    scores = 5.0 * MODEL.heads * MODEL.sequence**2
    hidden = X / 2
    assert retained_bytes(small(recompute=Recompute.NONE), 0) == 34 * hidden + scores
    assert retained_bytes(small(recompute=Recompute.SELECTIVE), 0) == 34 * hidden
    assert retained_bytes(small(), 0) == 2 * hidden
    assert retained_bytes(small(2, recompute=Recompute.SELECTIVE), 0) == (10 + 24 / 2) * hidden
    split = replace(small(2, recompute=Recompute.SELECTIVE), parallelism=Parallelism(2, sequence=True))
    assert retained_bytes(split, 0) == 34 / 2 * hidden


def test_what_a_modern_layer_keeps_by_hand() -> None:
    """Two norms' and two products' inputs, queries, halved keys and values, context, gate, up and product, sums."""
    assert retained_bytes(llama(), 0) == X * (4 + 1 + 1 + 1) + 3 * 768 * 128 * 2 + 4 * 128 * 4.0


def test_inputs_of_layers_go_out_and_come_back() -> None:
    result = copies(build_plan(offloaded(Offload(Store.HOST))))
    assert result == {TO_HOST: (4, 4 * X), TO_DEVICE: (4, 4 * X)}
    with_drive = copies(build_plan(offloaded(Offload(Store.NVME))))
    assert with_drive == dict.fromkeys((TO_HOST, TO_DEVICE, TO_STORAGE, FROM_STORAGE), (4, 4 * X))


@pytest.mark.parametrize(("copy_us", "step_us"), [(4.0, 4 * 10 + 8 + 4 * 10), (25.0, 210 + 10)])
def test_copies_hide_behind_layers_or_hold_the_layer_after_the_next_back(copy_us: float, step_us: float) -> None:
    """4 us out and in next to 10 us each: no one waits but the last layer, for its own way out and in again.

    25 us out: the first begins at 10, then one after the other until 110. The fourth layer begins at 60, when what the
    second one kept is away. Back, 25 us each from 110 on: each fetch begins when the layer after it does, 135, 160,
    185, 210, then the last layer's ten.
    """
    graph = build_plan(offloaded(Offload(Store.HOST), recompute=Recompute.NONE))
    rate = copy_us / retained_bytes(small(recompute=Recompute.NONE), 0)
    assert with_times(graph, LAYER, {}, {TO_HOST: rate, TO_DEVICE: rate}) == pytest.approx(step_us)


@pytest.mark.parametrize("state", [Sharded.OPTIMIZER, Sharded.GRADIENTS, Sharded.PARAMETERS])
def test_gradients_go_out_and_weights_come_back(state: Sharded) -> None:
    """2 bytes of a rank's part each way; of float32 parts of parameters 4 bytes out."""
    plan = offloaded(Offload(optimizer=Store.HOST), data=4, sharding=Sharding(state))
    own, result = owned_count(plan, 0).total, copies(build_plan(plan))
    out = 4.0 if state is Sharded.PARAMETERS else 2.0
    assert result[TO_HOST][1] == pytest.approx(own * out, rel=1e-4)
    assert result[TO_DEVICE][1] == pytest.approx(own * 2.0, rel=1e-4)
    assert result[TO_HOST][0] == (1 if state is Sharded.OPTIMIZER else 5)  # the layers and the embedding


def test_drives_hold_three_numbers_of_each_parameter() -> None:
    """12 bytes read and 12 written (Rajbhandari et al. 2021, section 3)."""
    plan = offloaded(Offload(optimizer=Store.NVME))
    result, own = copies(build_plan(plan)), stage_count(plan, 0).total
    for name in (FROM_STORAGE, TO_STORAGE):
        assert result[name] == (4, pytest.approx(own * 12.0, rel=1e-4))


def test_the_host_updates_piece_by_piece_while_weights_go_back() -> None:
    """Gradients 6 us, four updates of 10 us, the last piece's weights 3 us."""
    plan = offloaded(Offload(optimizer=Store.HOST))
    own = stage_count(plan, 0).total
    rates = {TO_HOST: 6.0 / (own * 2.0), HOST_ADAM: 40.0 / (own * 30.0), TO_DEVICE: 12.0 / (own * 2.0)}
    assert with_times(build_plan(plan), {}, {}, rates) == pytest.approx(6.0 + 40.0 + 3.0, rel=1e-5)


def test_slow_drives_hold_the_host_back() -> None:
    """The first piece is read at once, next to the gradients' way out; then 25 us for each of four, and an update."""
    plan = offloaded(Offload(optimizer=Store.NVME))
    own = stage_count(plan, 0).total
    rates = {HOST_ADAM: 40.0 / (own * 30.0), FROM_STORAGE: 100.0 / (own * 12.0)}
    assert with_times(build_plan(plan), {}, {}, rates) == pytest.approx(4 * 25.0 + 10.0, rel=1e-5)


def test_the_host_is_priced_by_its_memory() -> None:
    """30 bytes of each parameter over 2 x 204.8 GB/s x 0.8 / 8 of a DGX A100."""
    plan = offloaded(Offload(optimizer=Store.HOST))
    graph = build_plan(plan)
    cluster = default_cluster(load_device("a100_sxm_80gb"))
    given = AnalyticPredictor().predict(graph, cluster).latency_us
    nodes = graph.nodes
    work = (nodes["op_name"] == HOST_ADAM).to_numpy() & (nodes["segment"] == "T5").to_numpy()
    seconds = stage_count(plan, 0).total * 30.0 / (2 * 204.8e9 * 0.8 / 8)
    assert given[work].sum() == pytest.approx(seconds * 1e6, rel=1e-4)


def test_drives_are_priced_by_the_clusters() -> None:
    """1 us to start, 80 us of a drive, bytes over 7.88 GB/s x 0.8."""
    graph = build_plan(offloaded(Offload(Store.NVME)))
    given = AnalyticPredictor().predict(graph, default_cluster(load_device("a100_sxm_80gb"))).latency_us
    named = graph.nodes["event_name"].astype(object).isin([TO_STORAGE, FROM_STORAGE])
    assert given[named.to_numpy()] == pytest.approx([81.0 + X / (7.88e9 * 0.8) * 1e6] * 8)


def test_what_a_cluster_does_not_say_is_not_reported() -> None:
    """No drives, no sockets: unknown and named, not free."""
    graph = build_plan(offloaded(Offload(optimizer=Store.NVME)))
    cluster = replace(default_cluster(load_device("a100_sxm_80gb")), storage=None, host_sockets=None)
    given = AnalyticPredictor().predict(graph, cluster)
    named = graph.nodes["event_name"].astype(object).isin([TO_STORAGE, FROM_STORAGE]).to_numpy()
    assert np.isnan(given.latency_us[named]).all()
    assert any(HOST_ADAM in str(op) for op in given.uncovered_ops)
