"""Layers of published models: parameters and FLOPs against what is published about them."""

from dataclasses import replace

import pytest

from gnnperf.core import InputError, NodeType, OpFamily
from gnnperf.generate.transformer.block import Activation, Attention, Block, Kernels, Norm, Positions
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.plan import Parallelism, Recompute, Schedule, Sharding, Transformer, TransformerPlan
from gnnperf.generate.transformer.read import plan_from
from gnnperf.generate.transformer.sizes import stage_count
from gnnperf.hardware import conf_dir, read_yaml
from tests.generate.transformer.plans import product_flops, step_us, transfers

LLAMA = Block(
    Attention.FLASH, key_value_heads=2, norm=Norm.RMS, activation=Activation.SWIGLU, width=768,
    positions=Positions.ROTARY, bias=False, dropout=False, tied_embedding=False,
)  # fmt: skip
MODEL = Transformer(layers=4, hidden=256, heads=4, sequence=128, vocabulary=1024, dtype="bfloat16")


def llama(ways: Parallelism = Parallelism(), block: Block = LLAMA, batch: int = 4) -> TransformerPlan:  # noqa: B008
    return TransformerPlan("llama", MODEL, ways, Schedule(batch * ways.data, 1, recompute=Recompute.NONE), block)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama2_13b_fsdp", 13_015_864_320),
        ("llama2_70b_fsdp", 68_976_648_192),
        ("llama3_70b_fsdp", 70_553_706_496),
        ("mixtral_8x7b", 46_702_792_704),
    ],
)
def test_parameters_are_those_of_the_published_weights(name: str, parameters: int) -> None:
    plan = plan_from(read_yaml(conf_dir("plan") / f"{name}.yaml"), name)
    isolated = replace(plan, parallelism=Parallelism(), sharding=Sharding(), schedule=Schedule(1, 1))
    assert stage_count(isolated, 0).total == parameters


@pytest.mark.parametrize("tensor", [1, 2])
def test_flops_of_products_are_six_per_parameter_and_token(tensor: int) -> None:
    """2 forward, 4 backward; an embedding and norms multiply nothing (Kaplan et al. 2020, section 2.1)."""
    plan = llama(Parallelism(tensor=tensor))
    h, whole = MODEL.hidden, stage_count(llama(), 0).total
    multiplied = whole - 1024 * h - (2 * 4 + 1) * h
    assert product_flops(build_plan(plan)) * tensor == pytest.approx(6.0 * multiplied * 4 * MODEL.sequence, rel=1e-12)


def test_flash_attention_counts_what_a_causal_mask_leaves() -> None:
    """Two products forward and five backward over s (s + 1) / 2 pairs (Dao 2023, sections 3.1 and 4.1)."""
    nodes = build_plan(llama()).nodes
    result = nodes["flops"][(nodes["family"] == OpFamily.ATTENTION).to_numpy()].sum()
    pairs = MODEL.sequence * (MODEL.sequence + 1) / 2
    assert result == pytest.approx(4 * 4 * 4 * pairs * 64 * 2.0 * (2 + 5))  # micro-batches, layers, heads; 64 columns


def test_sequence_parallelism_gathers_and_scatters_what_was_summed() -> None:
    """Per layer 2 gathers and 2 scatters forward, 4 gathers (2 of inputs again) and 2 scatters backward.

    The embedding scatters forward and gathers backward; the logits gather, gather again and scatter.
    """
    result = transfers(build_plan(llama(Parallelism(tensor=2, sequence=True))))
    x = MODEL.sequence * MODEL.hidden * 2.0
    norms = (2 * 4 + 1) * MODEL.hidden * 2.0
    assert result == {
        ("all_gather", x / 2, 2): 4 * (6 * 4 + 3),
        ("reduce_scatter", x, 2): 4 * (4 * 4 + 2),
        ("all_reduce", MODEL.sequence * 4.0, 2): 4 * 3,
        ("all_reduce", norms, 2): 1,
    }


def test_messages_between_stages_are_a_part_of_the_sequence() -> None:
    result = transfers(build_plan(llama(Parallelism(tensor=2, pipeline=2, sequence=True))))
    assert result["send_recv", MODEL.sequence * MODEL.hidden * 2.0 / 2, 2] == 2 * 4
    assert not any(kind == "all_reduce" and size == 1024 * MODEL.hidden for kind, size, _ in result)  # not tied


@pytest.mark.parametrize(
    ("change", "faster"),
    [
        ({"attention": Attention.UNFUSED, "key_value_heads": None}, False),
        ({"width": 512}, True),
        ({"dropout": True}, False),
        ({"bias": True}, False),
    ],
)
def test_what_a_block_leaves_out_it_does_not_pay(change: dict[str, object], faster: bool) -> None:
    changed = step_us(build_plan(llama(block=replace(LLAMA, **change))))  # type: ignore[arg-type]
    assert (changed < step_us(build_plan(llama()))) == faster


EAGER = replace(LLAMA, kernels=Kernels.EAGER)


def test_eager_kernels_of_a_layer_by_hand() -> None:
    """Forward: q, k, v, projection, gate, up, down are a product each, queries and keys are turned by three ops each.

    Backward: two products for each, and sums of the input's gradients (two of q, k, v, one of gate and up).
    """
    nodes = build_plan(llama(block=EAGER, batch=1)).nodes
    ops = nodes["op_name"][(nodes["node_type"] == NodeType.COMPUTE).to_numpy()].value_counts()
    assert ops["aten::mm"] == 4 * 7 * 3 + 3  # and the logits
    assert ops["aten::silu"] == ops["aten::silu_backward"] == 4
    assert ops["aten::mul"] == 4 * (2 + 1 + 2 + 2)  # rotary forward; gate forward, backward; rotary backward
    assert ops["aten::add"] == 4 * (2 + 2 + 3)
    assert not any("triton" in name for name in ops.index[ops > 0])


@pytest.mark.parametrize("ways", [Parallelism(), Parallelism(tensor=2), Parallelism(tensor=2, sequence=True)])
def test_eager_kernels_compute_and_send_the_same_and_take_longer(ways: Parallelism) -> None:
    fused, eager = (build_plan(llama(ways, block)) for block in (LLAMA, EAGER))
    assert product_flops(eager) == product_flops(fused)
    assert transfers(eager) == transfers(fused)
    assert step_us(eager) > step_us(fused) > 0
    assert eager.ops_without_cost() == fused.ops_without_cost() == {}


def test_eager_kernels_are_those_of_plain_models() -> None:
    with pytest.raises(InputError, match=r"block\.dropout"):
        llama(block=replace(EAGER, dropout=True))


@pytest.mark.parametrize(
    ("block", "ways", "key"),
    [
        (replace(LLAMA, key_value_heads=3), Parallelism(), "block.key_value_heads"),
        (replace(LLAMA, key_value_heads=2), Parallelism(tensor=4), "parallelism.tensor"),
        (replace(LLAMA, attention=Attention.UNFUSED), Parallelism(), "block.attention"),
        (replace(LLAMA, width=767), Parallelism(tensor=2), "parallelism.tensor"),
        (LLAMA, Parallelism(context=3), "parallelism.tensor x parallelism.context"),  # 128 positions in six parts
        (Block(), Parallelism(context=2), "block.attention"),
    ],
)
def test_what_does_not_fit_is_refused(block: Block, ways: Parallelism, key: str) -> None:
    with pytest.raises(InputError) as error:
        llama(ways, block)
    assert error.value.where == key
