"""Settings together: whatever a plan accepts is a graph, and one rank of each stage takes as long as all."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.generate import ContextExchange, Parallelism, Recompute, Schedule, Sharded, Sharding, TransformerPlan
from gnnperf.generate.transformer.block import Block, Experts, Kernels
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.ends import embedding_backward, embedding_forward, head_backward, head_forward
from gnnperf.generate.transformer.items import Offload, Op, Store
from gnnperf.generate.transformer.layer import layer_backward, layer_forward
from gnnperf.generate.transformer.plan import Pipeline, Reduction, Transformer
from gnnperf.generate.uses import Use
from tests.generate.transformer.plans import every_rank, product_flops, step_us
from tests.generate.transformer.test_block import LLAMA

MODEL = Transformer(layers=4, hidden=64, heads=4, sequence=32, vocabulary=256, dtype="bfloat16")
WAYS = (Parallelism(2, 1, 2), Parallelism(2, 1, 2, 2, sequence=True), Parallelism(1, 2, 2), Parallelism(1, 1, 4, 2),
        Parallelism(2, 2, 1, sequence=True), Parallelism(1, 4, 1), Parallelism(2, 1, 2, 2, sequence=True, context=2),
        *(Parallelism(1, 2, 1, context=2, context_exchange=kind) for kind in ContextExchange))  # fmt: skip


BLOCKS = (Block(), LLAMA, replace(LLAMA, kernels=Kernels.EAGER))
EXPERTS = st.builds(Experts, st.just(4), st.sampled_from([1, 2]), st.sampled_from([1, 2]),
                    capacity_factor=st.sampled_from([None, 1.25]))  # fmt: skip


@st.composite
def plans(draw: st.DrawFn) -> TransformerPlan:
    ways = draw(st.sampled_from(WAYS))
    orders = [order for order in Pipeline if not order.allows(2)] if ways.pipeline > 1 else [Pipeline.ONE_F_ONE_B]
    schedule = draw(st.builds(
        Schedule, st.just(max(2, ways.pipeline) * ways.data), st.just(1), st.sampled_from(orders),
        recompute=st.sampled_from(list(Recompute)),
        reduction=st.sampled_from(list(Reduction)), bucket_bytes=st.just(1.0),
    ))  # fmt: skip
    state = draw(st.sampled_from(_states(ways)))
    on_host = state is not Sharded.NOTHING or ways.data_context == 1
    optimizer = draw(st.sampled_from(list(Store) if on_host else [Store.DEVICE]))
    return TransformerPlan(
        "drawn", MODEL, ways, schedule, draw(st.sampled_from(BLOCKS[int(ways.context > 1) :])),
        draw(EXPERTS) if ways.expert > 1 or (ways.tensor == 1 and draw(st.booleans())) else None,
        Sharding(state, draw(st.booleans())), Offload(draw(st.sampled_from(list(Store))), optimizer),
    )  # fmt: skip


def _states(ways: Parallelism) -> list[Sharded]:
    """What replicas may share."""
    if ways.data_context == 1:
        return [Sharded.NOTHING]
    if ways.pipeline > 1:
        return [Sharded.NOTHING, Sharded.OPTIMIZER]
    return list(Sharded)


@settings(max_examples=8)
@given(plan=plans())
def test_what_is_accepted_is_a_graph_that_computes_what_the_model_does(plan: TransformerPlan) -> None:
    reduced, whole = build_plan(plan), build_plan(plan, every_rank(plan.parallelism))
    assert whole.ops_without_cost() == {}
    assert step_us(reduced) == pytest.approx(step_us(whole), rel=1e-12)
    plain = TransformerPlan("plain", plan.model, plan.parallelism, plan.schedule, plan.block, plan.experts)
    assert product_flops(reduced) == product_flops(build_plan(plain))


@given(plans())
def test_every_op_states_what_it_takes_and_makes(plan: TransformerPlan) -> None:
    """An op without an account would be missing from the memory of plans."""
    lines = [*embedding_forward(plan), *embedding_backward(plan), *head_forward(plan), *head_backward(plan)]
    for layer in range(plan.model.layers):
        lines += [*layer_forward(plan, layer), *layer_backward(plan, layer)]
    for line, after in pairwise(lines):
        assert not isinstance(line, Op) or (isinstance(after, Use) and after.op == line.name)
