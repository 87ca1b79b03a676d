"""One transformer layer on one tensor-parallel rank, forward and backward, op by op.

    x -- norm -- f -- qkv -- attention -- projection -- g -- + -- norm -- f -- up -- activation -- down -- g -- +
      `------------------------------------------------------'  `-----------------------------------------------'

As the block is by default, this is Megatron-LM of 2021 and 2022: unfused attention; scale, mask and softmax, bias and
GELU, bias, dropout and addition fused. The second half may be experts (`routing`). f and g: `shards`. A product's
backward pass is two products; every weight's gradient is added to those of earlier micro-batches, unless it is sent on
in every pass. Ops that launch nothing stand where torch's profiler shows them for this code; frames around ops
(autograd's nodes, aten::linear) do not.
"""

from __future__ import annotations

from gnnperf.core import Phase
from gnnperf.generate.transformer.attention import attention, attention_backward, core, projections
from gnnperf.generate.transformer.block import Norm
from gnnperf.generate.transformer.items import Item, op, views
from gnnperf.generate.transformer.mlp import (
    B,
    accumulate,
    activated,
    activated_backward,
    bias_backward,
    first_products,
    product,
    product_backward,
    residual,
    residual_backward,
)
from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.routing import experts_backward, experts_forward
from gnnperf.generate.transformer.shards import (
    around,
    first_product_backward,
    into_products,
    out_of_products,
    out_of_products_backward,
)
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.graph import Tensor

# Norms over the hidden width, on the tokens that a rank holds.


def norm(plan: TransformerPlan, phase: Phase) -> Item:
    """The block's norm, forward."""
    s = sizes(plan)
    return _rms(s, phase) if plan.block.norm is Norm.RMS else _layer(s, phase)


def norm_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Gradients of input and weights; the latter are added up."""
    s = sizes(plan)
    return _rms_backward(s) if plan.block.norm is Norm.RMS else _layer_backward(s)


def _layer(s: Sizes, phase: Phase) -> Item:
    return op("aten::native_layer_norm", phase, s.stream, None, s.half(s.hidden), s.half(s.hidden))


def _rms(s: Sizes, phase: Phase) -> Item:
    return op("aten::_fused_rms_norm", phase, s.stream, None, s.half(s.hidden))


def _layer_backward(s: Sizes) -> tuple[Item, ...]:
    x, row, weight = s.stream, Tensor((s.resident,), "float32"), s.half(s.hidden)
    backward = op("aten::native_layer_norm_backward", B, x, x, None, row, row, weight, weight)
    return (backward, *accumulate(s, s.hidden), *accumulate(s, s.hidden))


def _rms_backward(s: Sizes) -> tuple[Item, ...]:
    x, row = s.stream, Tensor((s.resident, 1), "float32")
    backward = op("aten::_fused_rms_norm_backward", B, x, x, None, row, s.half(s.hidden))
    return (backward, *accumulate(s, s.hidden))


F = Phase.FORWARD


def layer_forward(plan: TransformerPlan, layer: int, phase: Phase = F) -> tuple[Item, ...]:
    """Ops of a layer of the model; in the backward phase, its recomputation."""
    second = experts_forward if plan.has_experts(layer) else _mlp_forward
    return (*_attention_forward(plan, phase), norm(plan, phase), *second(plan, phase), residual(plan, phase))


def layer_backward(plan: TransformerPlan, layer: int) -> tuple[Item, ...]:
    """Gradients; between them what selective recomputation repeats."""
    second = experts_backward if plan.has_experts(layer) else _mlp_backward
    return (
        *residual_backward(plan),
        *second(plan),
        *norm_backward(plan),
        around(plan),
        *_attention_backward(plan),
        *norm_backward(plan),
        around(plan),
    )


def _attention_forward(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    s = sizes(plan)
    return (
        norm(plan, phase),
        *into_products(plan, phase),
        *(item for columns in projections(plan) for item in _projection(plan, phase, columns)),
        *attention(plan, phase),
        *product(s, phase, s.shard, s.hidden),
        *out_of_products(plan, phase),
        views(phase, "expand"),
        residual(plan, phase),
    )


def _projection(plan: TransformerPlan, phase: Phase, columns: int) -> tuple[Item, ...]:
    """Queries, keys and values, or one of them."""
    s = sizes(plan)
    weight = s.half(s.hidden, columns)
    biased = op("aten::addmm", phase, s.half(columns), s.x, weight)
    return (views(phase, "view", "t"), biased if plan.block.bias else op("aten::mm", phase, s.x, weight))


def _mlp_forward(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    s = sizes(plan)
    return (
        *into_products(plan, phase),
        *(item for columns in first_products(plan, s.width) for item in product(s, phase, s.hidden, columns)),
        *activated(plan, phase, s.tokens, s.width, bias=plan.block.bias),
        *product(s, phase, s.width, s.hidden),
        *out_of_products(plan, phase),
        views(phase, "expand"),
    )


def _mlp_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    s = sizes(plan)
    return (
        *out_of_products_backward(plan),
        *product_backward(s, s.tokens, s.width, s.hidden),
        *activated_backward(plan, s.tokens, s.width, bias=plan.block.bias),
        *first_product_backward(plan, s.hidden, first_products(plan, s.width), ()),
    )


def _attention_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    s = sizes(plan)
    again = core(plan, B) if plan.schedule.recompute is Recompute.SELECTIVE else ()
    biased = bias_backward(s, s.tokens, s.projected) if plan.block.bias else ()
    return (
        *residual_backward(plan),
        *out_of_products_backward(plan),
        *product_backward(s, s.tokens, s.shard, s.hidden),
        *again,
        *attention_backward(plan),
        *first_product_backward(plan, s.hidden, projections(plan), biased),
    )
