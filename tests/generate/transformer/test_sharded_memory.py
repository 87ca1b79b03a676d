"""What ranks of plans hold: by hand, and against published formulas."""

from dataclasses import replace
from typing import Any

import pytest

from gnnperf.generate import HeldFor, Hold, Order, Pair, RankTensors, Sharded, Sharding, TransformerPlan
from gnnperf.generate.transformer import activations
from gnnperf.generate.transformer.block import Experts, Kernels
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.items import Offload, Store
from gnnperf.generate.transformer.memory import held_bytes, most_in_flight, stage_tensors
from gnnperf.generate.transformer.plan import Parallelism, Pipeline, Recompute, Reduction, Schedule, Transformer
from gnnperf.generate.transformer.rank_memory import embedding_uses, head_uses, layer_uses
from gnnperf.generate.transformer.sizes import layers_of, owned_count, stage_count
from gnnperf.generate.uses import retained_bytes
from gnnperf.memory import Part, PeakMemory
from gnnperf.memory.planned import ASKED, courses, in_blocks, planned_peak
from tests.generate.transformer import test_block
from tests.generate.transformer.plans import MODEL as SMALL_MODEL
from tests.generate.transformer.plans import small

MODEL = Transformer(layers=4, hidden=64, heads=4, sequence=32, vocabulary=128, dtype="bfloat16")
LLAMA = replace(test_block.LLAMA, width=96, kernels=Kernels.EAGER)
# A layer: queries and projection 2 x 64 x 64, keys and values 2 x 64 x 32, three products of 64 x 96, two norms.
LAYER = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64
EMBEDDING, HEAD = 128 * 64, 128 * 64 + 64
PARAMETERS = 4 * LAYER + EMBEDDING + HEAD


def _plan(state: Sharded, *, reshard: bool = True, batch: int = 1, **settings: Any) -> TransformerPlan:
    recompute, sharding = settings.pop("recompute", Recompute.NONE), Sharding(state, reshard)
    schedule = Schedule(4 * batch, 1, recompute=recompute, gradient_dtype="float32")
    return TransformerPlan("small", MODEL, Parallelism(data=4), schedule, LLAMA, sharding=sharding, **settings)


def _peak(plan: TransformerPlan) -> PeakMemory:
    (tensors,) = stage_tensors(plan)
    return planned_peak(tensors)


def _sizes(tensors: RankTensors, held_for: HeldFor, op: str) -> list[int]:
    return [e.num_bytes for e in tensors.stretches if isinstance(e, Hold) and e.held_for is held_for and e.op == op]


@pytest.mark.parametrize(
    ("state", "parameters", "gradients", "states"),
    [
        (Sharded.NOTHING, 2 * PARAMETERS, 4 * PARAMETERS, 12 * PARAMETERS),
        (Sharded.OPTIMIZER, 2 * PARAMETERS, 4 * PARAMETERS, 12 * PARAMETERS // 4),
        (Sharded.GRADIENTS, 2 * PARAMETERS, 0, 12 * PARAMETERS // 4),
        (Sharded.PARAMETERS, 4 * PARAMETERS // 4, 0, 8 * PARAMETERS // 4),
    ],
)
def test_each_stage_of_zero_divides_what_it_states(
    state: Sharded, parameters: int, gradients: int, states: int
) -> None:
    """Rajbhandari et al. 2020, section 3.1 with sums in float32; FSDP2's own weights are float32, without copies."""
    (tensors,) = stage_tensors(_plan(state))
    assert tensors.parameters_bytes == (parameters,)
    assert sum(tensors.gradients_bytes) == gradients
    assert sum(tensors.state_bytes) == states


def test_units_are_gathered_for_forward_and_backward_or_once_where_they_are_not_resharded() -> None:
    units = [2 * EMBEDDING, *[2 * LAYER] * 4, 2 * HEAD]
    for reshard, again in ((True, [*reversed(units[:-1])]), (False, [])):  # the head stays whole
        (tensors,) = stage_tensors(_plan(Sharded.PARAMETERS, reshard=reshard))
        assert _sizes(tensors, HeldFor.GATHERED, "fsdp::split_with_sizes_copy") == units + again
    peak = _peak(_plan(Sharded.PARAMETERS, reshard=False))
    assert peak.parts_bytes[Part.GATHERED] >= 2 * PARAMETERS


def test_at_the_peak_of_a_resharded_step_two_units_are_whole() -> None:
    """In the backward pass of a layer: its parameters and the buffer of the layer before."""
    peak = _peak(_plan(Sharded.PARAMETERS, recompute=Recompute.FULL))
    assert peak.parts_bytes[Part.GATHERED] == 2 * 2 * LAYER


@pytest.mark.parametrize("state", [Sharded.GRADIENTS, Sharded.PARAMETERS])
def test_each_rank_holds_its_part_of_the_gradients_once(state: Sharded) -> None:
    for batch in (1, 3):
        plan = _plan(state, batch=batch)
        (tensors,) = stage_tensors(plan)
        parts = [n for n in _sizes(tensors, HeldFor.GRADIENTS, "reduce_scatter") if n > 0]
        assert sum(parts) == 4 * owned_count(plan, 0).total


def test_micro_batches_of_a_sharded_rank_do_not_add_up() -> None:
    one, three = (_peak(_plan(Sharded.PARAMETERS, batch=batch)) for batch in (1, 3))
    assert three.parts_bytes[Part.ACTIVATIONS] == one.parts_bytes[Part.ACTIVATIONS]


def test_an_optimizer_on_the_host_takes_its_state_and_float32_weights_along() -> None:
    (tensors,) = stage_tensors(_plan(Sharded.PARAMETERS, offload=Offload(optimizer=Store.HOST)))
    assert tensors.parameters_bytes == (2 * PARAMETERS // 4,)
    assert tensors.state_bytes == ()


def test_offloaded_activations_are_those_of_two_layers() -> None:
    """While a layer runs, the one before it is on its way out (TransformerEngine, cpu_offload.py)."""
    retained = retained_bytes(layer_uses(_plan(Sharded.NOTHING)))
    stays, leaves = (
        _peak(_plan(Sharded.NOTHING, offload=Offload(activations=store))).parts_bytes[Part.ACTIVATIONS]
        for store in (Store.DEVICE, Store.HOST)
    )
    assert stays - leaves >= retained  # of four layers at most three are there, with what the peak's own op takes


def test_a_layer_of_llama_keeps_what_its_ops_take_backward() -> None:
    """Inputs of norms, of products and of attention; silu's and the product's; statistics in float32."""
    s, h, k, w = 32, 64, 32, 96
    half = s * (h + h + h + 2 * k + h + h + h + 4 * w)  # x, norm1, q, k and v, context, x1, norm2, gate to product
    float32 = s + s + 4 * s  # deviations of two norms; logarithms of sums of four heads
    assert retained_bytes(layer_uses(_plan(Sharded.NOTHING))) == 2 * half + 4 * float32


@pytest.mark.parametrize("ways", [2, 4])
def test_sequence_parallelism_divides_everything(ways: int) -> None:
    """Korthikanti et al. 2022, table 2: sbh (34/t + 5as/(ht)), and statistics of norms."""
    model = Transformer(layers=2, hidden=64, heads=4, sequence=32, vocabulary=128)
    schedule = Schedule(1, 1, recompute=Recompute.NONE)
    plan = TransformerPlan("g", model, Parallelism(tensor=ways, sequence=True), schedule)
    sbh, scores = 32 * 64, 5 * 4 * 32 * 32
    assert _retained(layer_uses(plan)) == (34 * sbh + scores) // ways + 16 * 32 // ways


ONE_LAYER_AT_A_TIME = Schedule(4, 1, recompute=Recompute.NONE)


def _expert_plan(ways: int, **settings: Any) -> TransformerPlan:
    experts = Experts(count=4, **settings)
    return TransformerPlan("e", MODEL, Parallelism(data=4, expert=ways), ONE_LAYER_AT_A_TIME, LLAMA, experts)


def test_experts_divide_over_expert_parallel_ranks() -> None:
    plans = [_expert_plan(ways, top_k=2) for ways in (1, 4)]
    whole, divided = (stage_count(plan, 0).total for plan in plans)
    assert whole - divided == 4 * 3 * 3 * 64 * 96  # of each of four layers three experts are on other ranks
    all_here, mine = (_peak(plan) for plan in plans)
    assert all_here.parts_bytes[Part.PARAMETERS] - mine.parts_bytes[Part.PARAMETERS] == 2 * (whole - divided)


def test_rows_of_experts_grow_with_top_k_and_imbalance() -> None:
    def activations(**settings: Any) -> int:
        return retained_bytes(layer_uses(_expert_plan(4, **settings)))

    one, two, uneven = activations(top_k=1), activations(top_k=2), activations(top_k=2, imbalance=2.0)
    rows = 32 * 2 * (64 + 4 * 96)  # per chosen expert: a row into it, four inside of it; bfloat16
    assert two - one >= rows
    assert uneven - two == 64 * 2 * (64 + 4 * 96)  # twice as many of those that arrive


def test_layers_that_are_not_computed_again_keep_all() -> None:
    def activations(layers: int | None) -> int:
        schedule = Schedule(4, 1, recompute=Recompute.FULL, recomputed_layers=layers, gradient_dtype="float32")
        return _peak(replace(_plan(Sharded.NOTHING), schedule=schedule)).parts_bytes[Part.ACTIVATIONS]

    none = _peak(_plan(Sharded.NOTHING)).parts_bytes[Part.ACTIVATIONS]
    assert activations(None) == activations(4) < activations(2) < activations(0) == none


def test_a_backward_pass_in_two_parts_keeps_inputs_for_the_second() -> None:
    """Qi et al. 2023, section 2: H1 holds as many micro-batches as 1F1B; what W needs stays longer, H2 holds more."""

    def activations(order: Pipeline) -> int:
        schedule = Schedule(8, 1, order, recompute=Recompute.NONE, gradient_dtype="float32")
        plan = TransformerPlan("p", MODEL, Parallelism(pipeline=4), schedule, LLAMA)
        return planned_peak(stage_tensors(plan)[0]).parts_bytes[Part.ACTIVATIONS]

    once, first, second = map(activations, (Pipeline.ONE_F_ONE_B, Pipeline.ZB_H1, Pipeline.ZB_H2))
    assert first == pytest.approx(once, rel=0.05)
    assert second > 1.5 * once


@pytest.mark.parametrize("order", [Pipeline.ZB_V, Pipeline.DUAL_PIPE_V])
def test_there_and_back_memory_is_even(order: Pipeline) -> None:
    """1F1B's first stage holds most, its last least; two chunks of each stage lie opposite to one another."""
    schedule = Schedule(12, 1, order, 2, recompute=Recompute.NONE, gradient_dtype="float32")
    plan = TransformerPlan("p", replace(MODEL, layers=8), Parallelism(pipeline=4), schedule, LLAMA)
    held = [planned_peak(rank).parts_bytes[Part.ACTIVATIONS] for rank in stage_tensors(plan)]
    assert max(held[1:]) == pytest.approx(min(held[1:]), rel=0.15)
    assert held_bytes(plan) <= max(planned_peak(rank).peak_bytes for rank in stage_tensors(plan))


def _in_pipeline(**settings: Any) -> TransformerPlan:
    """Four stages; gradients in buckets."""
    sharding = Sharding(Sharded.OPTIMIZER, release_gradients=settings.pop("release", False))
    schedule = Schedule(16, 1, recompute=Recompute.NONE, reduction=Reduction.BUCKETS, gradient_dtype="float32",
                        **settings)  # fmt: skip
    model = replace(MODEL, layers=6 if settings.get("ends_as_layers") else 8)
    return TransformerPlan("p", model, Parallelism(pipeline=4, data=4), schedule, LLAMA, sharding=sharding)


def test_gradients_that_are_released_leave_each_rank_its_part() -> None:
    """With chunks one layer's sum at a time and the parts, instead of all sums."""
    chunks = {"pipeline": Pipeline.INTERLEAVED, "chunks": 2}
    retained, released = (planned_peak(stage_tensors(_in_pipeline(release=r, **chunks))[1]) for r in (False, True))
    assert retained.parts_bytes[Part.GRADIENTS] == 2 * LAYER * 4
    assert released.parts_bytes[Part.GRADIENTS] < retained.parts_bytes[Part.GRADIENTS]
    assert released.held_between_steps_bytes == retained.held_between_steps_bytes - 2 * LAYER * 4 * 3 // 4


def test_ends_that_count_as_layers_have_stages_with_a_layer_less() -> None:
    plan = _in_pipeline(ends_as_layers=True)
    assert [len(layers_of(plan, stage)) for stage in range(4)] == [1, 2, 2, 1]
    totals = [stage_count(plan, stage).total for stage in range(4)]
    assert totals == [LAYER + EMBEDDING, 2 * LAYER, 2 * LAYER, LAYER + HEAD]
    assert len(build_plan(plan).ranks) == 4


# What a transformer's stages hold, against published formulas.

GPT3 = Transformer(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200)
ALL_KEPT: dict[str, Any] = {"recompute": Recompute.NONE, "gradient_dtype": "float32"}  # the update needs nothing more
STATISTICS = 16  # bytes per token: mean and deviation of two norms, which the paper leaves out


def _gpt3(recompute: Recompute, tensor: int = 1, micro_batch: int = 1) -> TransformerPlan:
    return TransformerPlan("gpt3", GPT3, Parallelism(tensor), Schedule(4, micro_batch, recompute=recompute))


def _retained(pair: Pair) -> int:
    """Bytes between its passes: of a layer what it leaves, its input instead of its result."""
    return int(courses(pair, in_blocks(lambda n: n))[0].net[ASKED])


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
    assert {kind: _retained(layer_uses(_gpt3(kind, tensor, micro_batch))) for kind in Recompute} == closed
    assert tensor > 1 or closed[Recompute.NONE] == sbh * (34 + core) + STATISTICS * tokens


def test_the_ends_keep_what_korthikanti_counts() -> None:
    """Ibid., section 4.3: mask of the embedding's dropout sbh; inputs of norm and logits 4sbh; logits 4sbv."""
    plan = _gpt3(Recompute.NONE)
    tokens, hidden = GPT3.sequence, GPT3.hidden
    first, last = (_retained(uses(plan)) for uses in (embedding_uses, head_uses))
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
        assert result[1] - result[2] == _retained(layer_uses(plan))
    few = _peaks(replace(plan, schedule=replace(plan.schedule, global_batch=4)))
    assert result[stage] == few[stage].parts_bytes[Part.ACTIVATIONS]  # however many there are


def test_gpipe_holds_all_micro_batches() -> None:
    two, four = (_peaks(small(pipeline=2, batch=n, order=Pipeline.GPIPE, **ALL_KEPT)) for n in (2, 4))
    held = [b.parts_bytes[Part.ACTIVATIONS] - a.parts_bytes[Part.ACTIVATIONS] for a, b in zip(two, four, strict=True)]
    plan = small(pipeline=2, **ALL_KEPT)
    tokens = SMALL_MODEL.sequence
    first = _retained(layer_uses(plan)) * 2 + tokens * SMALL_MODEL.hidden + 16 * tokens
    assert held[0] == 2 * first  # two more of two layers, of the dropout's mask, tokens and positions
    assert held[1] > 2 * (_retained(layer_uses(plan)) * 2 + 4 * tokens * plan.vocabulary_per_rank)  # and of the logits


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


def test_a_rank_holds_sixteen_bytes_per_parameter_logits_and_four_layers() -> None:
    """Rajbhandari et al. 2020: 2 + 2 + 12 bytes; 128 tokens x 1,024 columns of logits in float16 and float32."""
    plan = small(recompute=Recompute.NONE)
    states = 16 * stage_count(plan, 0).total
    logits = 128 * 1024 * (2 + 4)
    layers = 4 * activations.retained_bytes(plan, 0)
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
