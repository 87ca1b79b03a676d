"""Model and hardware FLOPs of plans, computed by hand."""

from dataclasses import replace
from typing import Any

import pytest

from gnnperf.generate import step_work
from gnnperf.generate.transformer.block import Activation, Block, Experts, Norm, Positions
from gnnperf.generate.transformer.flops import parameters_per_token
from gnnperf.generate.transformer.plan import Parallelism, Recompute, Schedule, Transformer, TransformerPlan

# hidden 8, 2 heads, 2 layers, 4 positions, 10 words. A layer of GPT-2: attention 8 x 24 + 24 + 8 x 8 + 8 = 288,
# MLP 8 x 32 + 32 + 32 x 8 + 8 = 552, two norms of 16: 872. Last norm 16, logits 80: 2 x 872 + 96 = 1,840.
MODEL = Transformer(layers=2, hidden=8, heads=2, sequence=4, vocabulary=10)
SCHEDULE = Schedule(global_batch=6, micro_batch=1, recompute=Recompute.NONE)
PLAN = TransformerPlan("small", MODEL, Parallelism(), SCHEDULE)
TOKENS = 24
ATTENTION = 12 * 2 * 8 * 4  # per token


def test_model_flops_are_six_per_parameter_and_token_and_attention() -> None:
    given = step_work(PLAN)
    assert parameters_per_token(PLAN) == 1840
    assert given.samples == 6
    assert given.tokens == TOKENS
    assert given.model_flops == TOKENS * (6 * 1840 + ATTENTION)
    assert given.hardware_flops == given.model_flops


def test_parallelism_leaves_model_flops_as_they_are() -> None:
    divided = replace(PLAN, parallelism=Parallelism(tensor=2, pipeline=2, data=2))
    assert step_work(divided) == step_work(PLAN)


@pytest.mark.parametrize(
    ("recomputation", "per_token"),
    [
        ({"recompute": Recompute.FULL}, 2 * (2 * 872 + 4 * 8 * 4)),
        ({"recompute": Recompute.FULL, "recomputed_layers": 1}, 2 * 872 + 4 * 8 * 4),
        ({"recompute": Recompute.SELECTIVE}, 2 * 4 * 8 * 4),
    ],
)
def test_recomputation_adds_the_forward_pass_of_what_is_repeated(recomputation: Any, per_token: int) -> None:
    given = step_work(replace(PLAN, schedule=replace(SCHEDULE, **recomputation)))
    assert given.model_flops is not None and given.hardware_flops is not None
    assert given.hardware_flops - given.model_flops == TOKENS * per_token


def test_a_token_goes_through_top_k_experts_and_the_router() -> None:
    block = Block(norm=Norm.RMS, activation=Activation.SWIGLU, width=16, positions=Positions.ROTARY, bias=False,
                  dropout=False)  # fmt: skip
    plan = replace(PLAN, block=block, experts=Experts(count=4, top_k=2))
    # attention 192 + 64, norms 16, router 32, two experts of 3 x 8 x 16: 1,072; last norm 8, logits 80
    assert parameters_per_token(plan) == 2 * 1072 + 88


@pytest.mark.parametrize(("name", "billions"), [("llama3_70b_fsdp", 69.5), ("mixtral_8x7b", 12.75)])
def test_shipped_models_have_the_parameters_of_their_names(name: str, billions: float) -> None:
    from gnnperf.generate import read_plan
    from gnnperf.hardware import conf_dir, read_yaml

    plan = read_plan(read_yaml(conf_dir("plan") / f"{name}.yaml"), name)
    assert isinstance(plan, TransformerPlan)
    assert parameters_per_token(plan) / 1e9 == pytest.approx(billions, rel=0.005)
