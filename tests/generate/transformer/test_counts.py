"""FLOPs, parameters and messages against closed formulas."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.memory import every_rank
from gnnperf.generate.transformer.plan import Parallelism, Recompute, Reduction, Schedule, Transformer, TransformerPlan
from gnnperf.generate.transformer.sizes import layer_parameters, stage_count
from tests.generate.transformer.graphs import product_flops, transfers
from tests.generate.transformer.plans import MODEL, small

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


def test_sums_over_shards() -> None:
    """Per layer and micro-batch two forward, repeated and backward; two at the ends; three for the cross entropy."""
    result = transfers(build_plan(small(tensor=2)))
    x, per_token = MODEL.sequence * MODEL.hidden * 2.0, MODEL.sequence * 4.0
    assert result == {("all_reduce", x, 2): 4 * (6 * 4 + 2), ("all_reduce", per_token, 2): 4 * 3}


def test_messages_between_stages_and_the_tied_embedding() -> None:
    result = transfers(build_plan(small(pipeline=2)))
    x, embedding = MODEL.sequence * MODEL.hidden * 2.0, 1024.0 * MODEL.hidden * 2.0
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
