"""What a transformer's stages hold, against published formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gnnperf.generate.transformer.activations import retained_bytes
from gnnperf.generate.transformer.held import held_bytes, most_in_flight
from gnnperf.generate.transformer.memory import stage_tensors
from gnnperf.generate.transformer.passes import Order
from gnnperf.generate.transformer.plan import (
    Parallelism,
    Pipeline,
    Recompute,
    Schedule,
    Sharded,
    Sharding,
    Transformer,
    TransformerPlan,
)
from gnnperf.generate.transformer.rank_memory import embedding_uses, head_uses, layer_uses
from gnnperf.generate.transformer.sizes import stage_count
from gnnperf.memory.measured import Part, PeakMemory
from gnnperf.memory.planned import ASKED, courses, in_blocks, planned_peak
from tests.generate.transformer.plans import MODEL, small

GPT3 = Transformer(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200)
ALL_KEPT: dict[str, Any] = {"recompute": Recompute.NONE, "gradient_dtype": "float32"}  # the update needs nothing more
STATISTICS = 16  # bytes per token: mean and deviation of two norms, which the paper leaves out


def _plan(recompute: Recompute, tensor: int = 1, micro_batch: int = 1) -> TransformerPlan:
    return TransformerPlan("gpt3", GPT3, Parallelism(tensor), Schedule(4, micro_batch, recompute=recompute))


def _retained(plan: TransformerPlan) -> int:
    """Bytes of a layer between its passes: what it leaves, its input instead of its result."""
    return int(courses(layer_uses(plan), in_blocks(lambda n: n))[0].net[ASKED])


@pytest.mark.parametrize("tensor", [1, 8])
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_a_layer_keeps_what_korthikanti_counts(tensor: int, micro_batch: int) -> None:
    """Korthikanti et al. 2022, table 2: 34 + 5as/h on one rank; 10 + 24/t + 5as/(ht); without the core; the input."""
    tokens = micro_batch * GPT3.sequence
    sbh, core = tokens * GPT3.hidden, 5 * GPT3.heads * GPT3.sequence / (GPT3.hidden * tensor)
    closed = {
        Recompute.NONE: sbh * (10 + 24 / tensor + core) + STATISTICS * tokens,
        Recompute.SELECTIVE: sbh * (10 + 24 / tensor) + STATISTICS * tokens,
        Recompute.FULL: 2 * sbh,
    }
    assert {kind: _retained(_plan(kind, tensor, micro_batch)) for kind in Recompute} == closed
    assert tensor > 1 or closed[Recompute.NONE] == sbh * (34 + core) + STATISTICS * tokens


def test_the_ends_keep_what_korthikanti_counts() -> None:
    """Ibid., section 4.3: mask of the embedding's dropout sbh; inputs of norm and logits 4sbh; logits 4sbv."""
    plan = _plan(Recompute.NONE)
    tokens, hidden = GPT3.sequence, GPT3.hidden
    first, last = (
        int(courses(pair(plan), in_blocks(lambda n: n))[0].net[ASKED]) for pair in (embedding_uses, head_uses)
    )
    x, ids, statistics = 2 * tokens * hidden, 8 * tokens, 8 * tokens
    assert first == tokens * hidden + x + 2 * ids  # and its result, and tokens and positions
    assert last == 2 * x + 4 * tokens * GPT3.vocabulary + statistics + ids - x  # the last layer's result is copied


def _peaks(plan: TransformerPlan) -> list[PeakMemory]:
    return [planned_peak(tensors) for tensors in stage_tensors(plan)]


@pytest.mark.parametrize(("gradients", "per_parameter"), [("float16", 16), ("float32", 18)])
def test_sixteen_bytes_per_parameter(gradients: str, per_parameter: int) -> None:
    """Rajbhandari et al. 2020, section 3.1: 2 + 2 + 12 with Adam in mixed precision; gradients in float32 are 4."""
    (result,) = _peaks(small(gradient_dtype=gradients))
    held = [result.parts_bytes[p] for p in (Part.PARAMETERS, Part.OPTIMIZER_STATE)]
    count = stage_count(small(), 0).total
    assert sum(held) == 14 * count
    assert result.parts_bytes[Part.GRADIENTS] - 2 * count in ((per_parameter - 16) * count, 4 * count)


@pytest.mark.parametrize("stage", range(4))
def test_a_stage_of_1f1b_holds_as_many_micro_batches_as_stages_follow(stage: int) -> None:
    """p - i micro-batches at stage i: the difference of neighbors in the middle is one micro-batch of a layer."""
    plan = small(pipeline=4, batch=8, **ALL_KEPT)
    result = [peak.parts_bytes[Part.ACTIVATIONS] for peak in _peaks(plan)]
    if stage in (1, 2):
        assert result[1] - result[2] == _retained(plan)
    few = _peaks(replace(plan, schedule=replace(plan.schedule, global_batch=4)))
    assert result[stage] == few[stage].parts_bytes[Part.ACTIVATIONS]  # however many there are


def test_gpipe_holds_all_micro_batches() -> None:
    two, four = (_peaks(small(pipeline=2, batch=n, order=Pipeline.GPIPE, **ALL_KEPT)) for n in (2, 4))
    held = [b.parts_bytes[Part.ACTIVATIONS] - a.parts_bytes[Part.ACTIVATIONS] for a, b in zip(two, four, strict=True)]
    plan = small(pipeline=2, **ALL_KEPT)
    tokens, first = MODEL.sequence, _retained(plan) * 2 + MODEL.sequence * MODEL.hidden + 16 * MODEL.sequence
    assert held[0] == 2 * first  # two more of two layers, of the dropout's mask, tokens and positions
    assert held[1] > 2 * (_retained(plan) * 2 + 4 * tokens * plan.vocabulary_per_rank)  # and of the logits


def test_interleaving_holds_more_than_1f1b() -> None:
    """Korthikanti et al. 2022, section 4.2.2: 1 + (p - 1) / (p m) as much, of the layers of the first stage."""
    plans = [small(pipeline=2, batch=8, **ALL_KEPT),
             small(pipeline=2, batch=8, order=Pipeline.INTERLEAVED, chunks=2, **ALL_KEPT)]  # fmt: skip
    once, chunked = (_peaks(plan)[0].parts_bytes[Part.ACTIVATIONS] for plan in plans)
    assert 1.0 < chunked / once < 1 + 1 / 2


@pytest.mark.parametrize("order", [Pipeline.ONE_F_ONE_B, Pipeline.GPIPE])
@pytest.mark.parametrize("recompute", list(Recompute))
def test_all_is_let_go_at_the_end(order: Pipeline, recompute: Recompute) -> None:
    """`planned_peak` asserts it: every tensor that a step makes is taken for the last time in it."""
    for peak in _peaks(small(tensor=2, pipeline=2, data=2, order=order, recompute=recompute)):
        assert peak.peak_bytes > peak.held_between_steps_bytes - peak.parts_bytes[Part.GRADIENTS]


# Memory in closed form, by hand.


def test_a_rank_holds_sixteen_bytes_per_parameter_logits_and_four_layers() -> None:
    """Rajbhandari et al. 2020: 2 + 2 + 12 bytes; 128 tokens x 1,024 columns of logits in float16 and float32."""
    plan = small(recompute=Recompute.NONE)
    states = 16 * stage_count(plan, 0).total
    logits = 128 * 1024 * (2 + 4)
    layers = 4 * retained_bytes(plan, 0)
    assert held_bytes(plan) == states + max(layers + logits, 4 * stage_count(plan, 0).total)


def test_sharding_divides_the_optimizer_state_over_replicas() -> None:
    whole = small(data=4, recompute=Recompute.NONE)
    shared = replace(whole, sharding=Sharding(Sharded.OPTIMIZER))
    count = stage_count(whole, 0).total
    assert held_bytes(shared) < held_bytes(whole) - 8 * count  # nine of twelve bytes, and gradients in float32


def test_micro_batches_in_flight_follow_from_the_order() -> None:
    def of(kind: Pipeline, chunks: int = 1) -> list[int]:
        return [most_in_flight(Order(kind, 4, 8, chunks), stage) for stage in range(4)]

    assert of(Pipeline.GPIPE) == [8, 8, 8, 8]
    assert of(Pipeline.ONE_F_ONE_B) == [4, 3, 2, 1]
    assert of(Pipeline.INTERLEAVED, 2) == [11, 9, 7, 5]  # chunks: p v + p - 1 on the first stage
    assert of(Pipeline.ZB_H1) == [4, 4, 4, 4]  # held until gradients of weights: as much as 1F1B's first stage
