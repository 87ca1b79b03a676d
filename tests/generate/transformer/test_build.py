"""The graph and its schedule: by hand, reduced against whole, bubbles."""

import numpy as np
import pytest

from gnnperf.core import NodeType, Phase, Relation
from gnnperf.generate import Parallelism, Recompute, Schedule, TransformerPlan
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.items import Group, HostWait, Placed, Transfer, op
from gnnperf.generate.transformer.memory import one_per_stage
from gnnperf.generate.transformer.plan import Pipeline, Reduction, Transformer
from gnnperf.generate.transformer.rank_nodes import rank_nodes
from gnnperf.generate.transformer.sizes import layer_parameters, stage_count
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import schedule
from tests.generate.transformer.plans import MODEL, every_rank, product_flops, small, step_us, transfers

KERNEL = Placed(op("aten::add", Phase.FORWARD, None))
TRANSFER = Placed(Transfer("all_reduce", Group.TENSOR, 8.0, "float16", Phase.FORWARD, awaited=True))


def test_a_rank_of_three_items_by_hand() -> None:
    """Kernel, awaited transfer, kernel: 5 + 6 + 5 nodes; the transfer waits for the first kernel, the second for it."""
    result = rank_nodes([KERNEL, TRANSFER, KERNEL], small(2).parallelism)
    edges = result.edges.table()
    between = {relation: set(zip(part["src"], part["dst"], strict=True))
               for relation, part in edges.groupby("relation", observed=True)}  # fmt: skip
    assert len(result.table) == 16
    assert [(p.arrive, p.transfer) for p in result.parts] == [(9, TRANSFER.item)]
    assert between[Relation.LAUNCHES] == {(2, 4), (7, 9), (13, 15)}
    assert between[Relation.WAITS] == {(4, 9), (10, 15)}
    assert (4, 15) in between[Relation.FOLLOWS]
    assert (9, 10) not in between[Relation.FOLLOWS]


def test_the_host_waits_for_the_last_kernel_and_transfer() -> None:
    result = rank_nodes([KERNEL, TRANSFER, Placed(HostWait(Phase.FORWARD))], small(2).parallelism)
    waits = result.edges.table().query("relation == 'waits' and dst == 11")
    assert sorted(waits["src"]) == [4, 10]
    assert set(waits["lag_class"]) == {"sync"}


@pytest.mark.parametrize(
    "plan",
    [
        small(2, 2, 2, order=Pipeline.INTERLEAVED, chunks=2),
        small(2, 2, 2, order=Pipeline.BREADTH_FIRST, chunks=2),
        small(2, 2, 2, order=Pipeline.ZB_H1, reduction=Reduction.BUCKETS, bucket_bytes=1.0),
        small(1, 4, 2, order=Pipeline.ZB_H2),
        small(2, 2, 2, order=Pipeline.ZB_V, chunks=2, reduction=Reduction.BUCKETS, bucket_bytes=1.0),
        small(2, 2, 2, order=Pipeline.DUAL_PIPE_V, chunks=2),
    ],
)
def test_one_rank_per_stage_takes_as_long_as_all(plan: TransformerPlan) -> None:
    whole, reduced = build_plan(plan, every_rank(plan.parallelism)), build_plan(plan)
    assert len(whole.ranks) == 8
    assert len(reduced.ranks) == plan.parallelism.pipeline
    assert step_us(reduced) == pytest.approx(step_us(whole), rel=1e-12)


def test_roles_say_for_how_many_ranks_they_stand() -> None:
    plan = small(2, 2, 2)
    assert one_per_stage(plan.parallelism).multiplicity == {0: 4, 4: 4}
    graph = build_plan(plan)
    assert (graph.ranks, graph.world_size, graph.stands_for) == ((0, 4), 8, (4, 4))


def _equal_stages_us(graph: ExecutionGraph, kernel_us: float) -> float:
    """The step where every kernel of a layer takes the same time and everything else none."""
    nodes = graph.nodes
    layer = (nodes["node_type"] == NodeType.COMPUTE).to_numpy() & nodes["op_name"].isin(["aten::baddbmm"]).to_numpy()
    return schedule(graph, np.where(layer, kernel_us, 0.0), np.zeros(len(graph.edges))).makespan_us


@pytest.mark.parametrize(
    ("order", "stages", "micro_batches", "chunks"),
    [*((order, stages, 8, 1) for order in (Pipeline.ONE_F_ONE_B, Pipeline.GPIPE) for stages in (1, 2, 4)),
     (Pipeline.INTERLEAVED, 2, 4, 2)],
)  # fmt: skip
def test_the_bubble_of_equal_stages(order: Pipeline, stages: int, micro_batches: int, chunks: int) -> None:
    """(p - 1) / (v m) of the ideal time (Narayanan et al. 2021, section 2.2): a kernel forward and one backward."""
    graph = build_plan(small(pipeline=stages, batch=micro_batches, order=order, chunks=chunks))
    ideal_us = micro_batches * 2 * (4 / stages)  # both ways through a stage's layers, 1 us each
    assert _equal_stages_us(graph, 1.0) == pytest.approx(ideal_us * (1 + (stages - 1) / (chunks * micro_batches)))


@pytest.mark.parametrize("order", [Pipeline.ZB_H1, Pipeline.ZB_H2])
def test_gradients_of_weights_fill_the_bubble(order: Pipeline) -> None:
    """Qi et al. 2023: with F = B = W the last stage starts p - 1 late and then never waits."""
    graph = build_plan(small(pipeline=4, batch=8, order=order, recompute=Recompute.NONE))
    nodes, kernel = graph.nodes, (graph.nodes["device"] >= 0).to_numpy()
    one = nodes["op_name"].isin(["aten::_softmax", "aten::_softmax_backward_data"]).to_numpy()
    weights = (nodes["input_dims"].astype(str) == "[[768, 128], [128, 256]]").to_numpy()  # of queries, keys and values
    latency_us = np.where(kernel & (one | weights), 1.0, 0.0)
    assert schedule(graph, latency_us, np.zeros(len(graph.edges))).makespan_us == pytest.approx(3 * 8 + 3)


@pytest.mark.parametrize("order", [Pipeline.ZB_H1, Pipeline.ZB_H2, Pipeline.GPIPE])
def test_every_order_of_passes_has_the_kernels_of_1f1b(order: Pipeline) -> None:
    def kernels(plan: TransformerPlan) -> list[str]:
        nodes = build_plan(plan).nodes
        calls = nodes["op_name"].astype(str) + nodes["input_dims"].astype(object).fillna("").astype(str)
        return sorted(calls[nodes["device"] >= 0])

    assert kernels(small(pipeline=2, order=order)) == kernels(small(pipeline=2))


@pytest.mark.parametrize("order", [Pipeline.ZB_V, Pipeline.DUAL_PIPE_V])
def test_there_and_back_the_first_stage_has_both_ends(order: Pipeline) -> None:
    """Its embedding is tied without a copy; no message leads from a stage to itself."""
    plan = small(pipeline=2, batch=4, order=order, chunks=2)
    moved = build_plan(plan).nodes.query("node_type == 'collective'")
    assert set(moved["collective"]) == {"send_recv"}
    assert len(moved) == 4 * 2 * 2  # micro-batches, both ways, parts 0 to 1 and 2 to 3
    assert sum(stage_count(plan, stage).total for stage in range(2)) == stage_count(small(), 0).total


def test_buckets_hide_behind_the_backward_pass() -> None:
    """Four layers of ten us each backward, a layer's gradients take 8 us: only the last ones are left at the end."""
    result = {}
    for kind in Reduction:
        graph = build_plan(small(data=8, batch=1, reduction=kind, bucket_bytes=1.0))
        nodes = graph.nodes
        moves = (nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()
        layer = nodes["op_name"].isin(["aten::_softmax_backward_data"]).to_numpy() & (nodes["device"] >= 0).to_numpy()
        transfer_us = 8.0 * nodes["message_bytes"].to_numpy() / (2.0 * layer_parameters(small()))
        latency_us = np.where(moves, transfer_us, np.where(layer, 10.0, 0.0))
        result[kind] = schedule(graph, latency_us, np.zeros(len(graph.edges))).makespan_us
    after_us = 8.0 * (1024 + 128) * 256 / layer_parameters(small())  # the embedding's gradients come last
    assert result[Reduction.BUCKETS] == pytest.approx(4 * 10.0 + 8.0 + after_us)
    assert result[Reduction.AT_END] == pytest.approx(4 * 10.0 + 4 * 8.0 + after_us, rel=1e-3)  # and the last norm's


# FLOPs, parameters and messages against closed formulas.

LARGE = Transformer(layers=4, hidden=512, heads=8, sequence=256, vocabulary=1024)


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_flops_of_full_recomputation_are_those_of_narayanan(tensor: int, pipeline: int) -> None:
    """Narayanan et al. 2021, equation 3: 96 B s l h^2 (1 + s / 6h + V / 16lh), the backward logits included."""
    plan = TransformerPlan("a", LARGE, Parallelism(tensor, pipeline), Schedule(4, 2))
    s, layers, h, rows = LARGE.sequence, LARGE.layers, LARGE.hidden, LARGE.vocabulary
    closed = 96.0 * 4 * s * layers * h**2 * (1 + s / (6 * h) + rows / (16 * layers * h))
    assert product_flops(build_plan(plan, every_rank(plan.parallelism))) == pytest.approx(closed, rel=1e-9)
    assert product_flops(build_plan(plan)) * tensor == pytest.approx(closed, rel=1e-9)


def test_flops_by_recomputation() -> None:
    """Forward and twice that backward: 72; full repeats 24; selective repeats 4 s / h of attention."""
    result = {kind: product_flops(build_plan(small(recompute=kind))) for kind in Recompute}
    tokens, hidden, layers = 4 * MODEL.sequence, MODEL.hidden, MODEL.layers
    layer = tokens * layers * (24.0 * hidden**2 + 4.0 * MODEL.sequence * hidden)
    assert result[Recompute.FULL] - result[Recompute.NONE] == pytest.approx(layer)
    core = tokens * layers * 4.0 * MODEL.sequence * hidden
    assert result[Recompute.SELECTIVE] - result[Recompute.NONE] == pytest.approx(core)


def test_parameters_by_hand() -> None:
    """12 h^2 + 13 h per layer, the embedding, positions, the last norm."""
    h, plan = MODEL.hidden, small()
    assert layer_parameters(plan) == 12 * h**2 + 13 * h
    assert stage_count(plan, 0).total == 4 * (12 * h**2 + 13 * h) + 1024 * h + 128 * h + 2 * h


def test_sums_over_shards_and_messages_between_stages() -> None:
    """Per layer and micro-batch two forward, repeated and backward; two at the ends; three for the cross entropy."""
    result = transfers(build_plan(small(tensor=2)))
    x, per_token = MODEL.sequence * MODEL.hidden * 2.0, MODEL.sequence * 4.0
    assert result == {("all_reduce", x, 2): 4 * (6 * 4 + 2), ("all_reduce", per_token, 2): 4 * 3}
    result, embedding = transfers(build_plan(small(pipeline=2))), 1024.0 * MODEL.hidden * 2.0  # which both ends hold
    assert result == {("send_recv", x, 2): 2 * 4, ("all_reduce", embedding, 2): 1}


def test_gradients_at_the_end_and_in_buckets_are_the_same_bytes() -> None:
    at_end = transfers(build_plan(small(data=2)))
    layer_bytes = layer_parameters(small()) * 2.0
    buckets = transfers(build_plan(small(data=2, reduction=Reduction.BUCKETS, bucket_bytes=layer_bytes)))
    assert at_end == {("all_reduce", stage_count(small(), 0).total * 2.0, 2): 1}
    assert sum(buckets.values()) == 4 + 2  # layers; norm at the end, embedding at the beginning
    assert sum(size * n for (_, size, _), n in buckets.items()) == stage_count(small(), 0).total * 2.0


@pytest.mark.parametrize("stage", [0, 1])
def test_buckets_of_a_pipeline_are_all_gradients(stage: int) -> None:
    plan = small(pipeline=2, data=2, reduction=Reduction.BUCKETS, bucket_bytes=1.0)
    nodes = build_plan(plan).nodes
    sent = nodes[(nodes["stream"] == 2).to_numpy() & (nodes["segment"] == "arrive").to_numpy()]
    own = sent[(sent["rank"] == stage * 2).to_numpy()]
    assert own["message_bytes"].sum() == stage_count(plan, stage).total * 2.0


def test_gradients_in_float32_are_twice_the_bytes() -> None:
    half, full = (transfers(build_plan(small(data=2, gradient_dtype=d))) for d in ("float16", "float32"))
    assert [2 * size for _, size, _ in half] == [size for _, size, _ in full]


def test_nothing_is_labeled_and_all_costs_are_known() -> None:
    graph = build_plan(small(2, 2, 2))
    work = graph.nodes[(graph.nodes["step"] == 0).to_numpy()]
    assert work[["start_us", "latency_us", "blocked_us"]].isna().all().all()
    assert graph.edges["lag_us"].isna().all()
    assert graph.ops_without_cost() == {}
    assert np.array_equal(graph.nodes["step"].unique(), [0, -1])  # -1: hardware
