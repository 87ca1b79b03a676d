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

from collections.abc import Sequence

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Attention, Kernels, Norm, Positions
from gnnperf.generate.transformer.items import (
    Await,
    Group,
    Item,
    Lane,
    Record,
    all_gather,
    all_reduce,
    fused,
    op,
    reduce_scatter,
    views,
)
from gnnperf.generate.transformer.mlp import (
    B,
    accumulate,
    activated,
    activated_backward,
    bias_backward,
    experts_backward,
    experts_forward,
    first_products,
    input_gradient,
    product,
    product_backward,
    residual,
    residual_backward,
    weight_gradient,
)
from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.graph import Tensor

# Between the product that makes queries, keys and values and the one that takes the context: forward, backward.
#
# Unfused: Megatron-LM's CoreAttention (scale, mask and softmax in one kernel; dropout in one). Flash: torch's
# scaled_dot_product_attention with its flash kernel, causal, dropout inside; fewer heads of keys are not repeated
# (enable_gqa). Rotary positions turn queries and keys by one kernel each, both ways.

FLASH = "aten::_scaled_dot_product_flash_attention"
CAUSAL_FORWARD = ("", "", "", "0.", "True")  # argument 4
CAUSAL_BACKWARD = (*("",) * 10, "0.", "True")  # argument 11


def attention(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """From the projection's columns to the context's."""
    s = sizes(plan)
    return (
        *split(plan, phase),
        *_turned(plan, phase),
        *core(plan, phase),
        *(
            _side_by_side(s, phase)
            if plan.block.attention is Attention.UNFUSED
            else (views(phase, "transpose", "reshape"),)
        ),
    )


def core(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """Scores, their softmax and dropout, context: what selective recomputation repeats."""
    s = sizes(plan)
    return _flash(s, plan, phase) if plan.block.attention is Attention.FLASH else _unfused(s, plan, phase)


def attention_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """From the context's gradient to that of queries, keys and values side by side."""
    s = sizes(plan)
    if plan.block.attention is Attention.FLASH:
        joined = _joined(s) if plan.block.kernels is Kernels.FUSED else ()
        return (*_flash_backward(s, plan), *_turned(plan, B), *joined)
    return (*_unfused_backward(s, plan), *_turned(plan, B), *_joined(s))


def split(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """Views of the projection's columns as heads."""
    if plan.block.attention is Attention.FLASH:
        return (
            views(phase, "view", "split_with_sizes", "view", "view", "view", "transpose", "transpose", "transpose"),
        )
    return (views(phase, "view", "view", "narrow", "narrow", "narrow", "reshape", "reshape", "empty"),)


def projections(plan: TransformerPlan) -> tuple[int, ...]:
    """Columns of the products that make queries, keys and values: all in one, or one after the other."""
    s = sizes(plan)
    keys = s.key_heads * s.head
    return (s.shard, keys, keys) if plan.block.kernels is Kernels.EAGER else (s.projected,)


def _turned(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """Queries and keys with their positions."""
    if plan.block.positions is Positions.LEARNED:
        return ()
    s = sizes(plan)
    shapes = [(s.tokens, columns) for columns in (s.shard, s.key_heads * s.head)]
    if plan.block.kernels is Kernels.FUSED:
        return tuple(fused("rotary", phase, s.half(*shape), s.half(*shape)) for shape in shapes)
    return tuple(item for shape in shapes for item in _turned_by_parts(s, phase, shape))


def _turned_by_parts(s: Sizes, phase: Phase, shape: tuple[int, int]) -> tuple[Item, ...]:
    """To float32, times unit complex numbers, and back (Llama's apply_rotary_emb, as torchtitan has it)."""
    wide = Tensor(shape, "float32")
    return (
        op("aten::copy_", phase, wide, s.half(*shape)),
        op("aten::mul", phase, wide, None),
        op("aten::copy_", phase, s.half(*shape), wide),
    )


def _unfused(s: Sizes, plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    mask = Tensor(s.scores.shape, "bool")
    dropped = (fused("native_dropout", phase, s.scores, s.scores, mask),) if plan.block.dropout else ()
    return (
        views(phase, "transpose", "transpose", "transpose"),
        op("aten::baddbmm", phase, s.scores, s.by_head(), s.by_head(transposed=True)),
        views(phase, "view"),
        op("aten::_softmax", phase, s.scores),
        *dropped,
        views(phase, "reshape", "view", "transpose"),
        op("aten::bmm", phase, s.scores, s.by_head()),
    )


def _side_by_side(s: Sizes, phase: Phase) -> tuple[Item, ...]:
    """Heads of the context as columns again."""
    return (
        views(phase, "view", "permute", "empty_like"),
        op("aten::copy_", phase, s.half(s.tokens, s.shard), s.half(s.tokens, s.shard)),
        views(phase, "view"),
    )


def _unfused_backward(s: Sizes, plan: TransformerPlan) -> tuple[Item, ...]:
    across = s.half(*s.scores.shape)  # its transpose has the same shape: sequence by sequence
    part, mask = s.half(s.tokens, s.shard), Tensor(s.scores.shape, "bool")
    dropped = (fused("native_dropout_backward", B, s.scores, mask, s.scores),) if plan.block.dropout else ()
    return (
        views(B, "reshape", "permute", "reshape", "transpose", "transpose"),
        op("aten::bmm", B, s.by_head(), s.by_head(transposed=True)),  # of the probabilities
        op("aten::bmm", B, across, s.by_head()),  # of the values
        views(B, "transpose", "reshape", "reshape"),
        *dropped,
        op("aten::_softmax_backward_data", B, s.scores, s.scores),
        views(B, "reshape", "transpose", "transpose"),
        op("aten::bmm", B, s.scores, s.by_head()),  # of the queries
        op("aten::bmm", B, across, s.by_head()),  # of the keys
        op("aten::mul", B, part, None),  # both by the scale of the scores
        op("aten::mul", B, part, None),
        views(B, "transpose", "transpose", "transpose", "reshape", "reshape", "narrow", "narrow", "narrow"),
    )


def _flash(s: Sizes, plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    q, k = s.heads(s.batch_heads // s.batch), s.heads(s.key_heads)
    return (op(FLASH, phase, q, k, k, None, None, values=CAUSAL_FORWARD),)


def _flash_backward(s: Sizes, plan: TransformerPlan) -> tuple[Item, ...]:
    """(grad, q, k, v, out, logsumexp, cumulative lengths: none, longest: none, dropout, causal)."""
    heads = s.batch_heads // s.batch
    q, k, rows = s.heads(heads), s.heads(s.key_heads), Tensor((s.batch, heads, s.sequence), "float32")
    backward = op(f"{FLASH}_backward", B, q, q, k, k, q, rows, *(None,) * 6, values=CAUSAL_BACKWARD)
    return (views(B, "reshape", "transpose"), backward, views(B, "transpose", "transpose", "transpose"))


def _joined(s: Sizes) -> tuple[Item, ...]:
    """Gradients of queries, keys and values, copied side by side."""
    return (op("aten::copy_", B, s.half(s.tokens, s.projected), s.half(s.tokens, s.projected)),)


# What tensor-parallel ranks exchange around a pair of products.
#
# f goes in, g comes out (Shoeybi et al. 2019, figure 4; with sequence parallelism Korthikanti et al. 2022, figure 5):
#
#                        forward                      backward
#     f  tensor          nothing                      all-reduce of the input's gradient
#        sequence        all-gather of the input      it is gathered once more next to the input gradient's product,
#        whose
#                                                     result is reduce-scattered next to the weight gradient's
#     g  tensor          all-reduce of the result     nothing
#        sequence        reduce-scatter of it         all-gather of its gradient
#
# The overlap of f backward is that of Megatron-LM's LinearWithGradAccumulationAndAsyncCommunication.

GATHERED_AGAIN, SCATTERED = "input gathered again", "input gradient scattered"


def into_products(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """f: what the ranks hold of the sequence, on all of them."""
    return (all_gather(Group.TENSOR, sizes(plan).stream, phase),) if plan.splits_sequence else ()


def out_of_products(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """g: the sum over ranks, or each rank's part of it."""
    x = sizes(plan).x
    if plan.splits_sequence:
        return (reduce_scatter(Group.TENSOR, x, phase),)
    return (all_reduce(Group.TENSOR, x, phase),) if plan.parallelism.tensor > 1 else ()


def out_of_products_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """g backward."""
    return (all_gather(Group.TENSOR, sizes(plan).stream, B),) if plan.splits_sequence else ()


def first_product_backward(
    plan: TransformerPlan, depth: int, columns: Sequence[int], after: tuple[Item, ...]
) -> tuple[Item, ...]:
    """Gradients of the products behind f, and f backward."""
    s = sizes(plan)
    added = op("aten::add", B, s.x, s.x)  # their input's gradients
    if not plan.splits_sequence:
        summed = (all_reduce(Group.TENSOR, s.x, B),) if plan.parallelism.tensor > 1 else ()
        both = [(*product_backward(s, s.tokens, depth, c), *((added,) if i else ())) for i, c in enumerate(columns)]
        return (*(item for each in both for item in each), *after, *summed)
    inputs = [(*input_gradient(s, s.tokens, depth, c), *((added,) if i else ())) for i, c in enumerate(columns)]
    return (
        all_gather(Group.TENSOR, s.stream, B, awaited=False),
        Record(Lane.TENSOR, GATHERED_AGAIN),
        *(item for each in inputs for item in each),
        reduce_scatter(Group.TENSOR, s.x, B, awaited=False),
        Record(Lane.TENSOR, SCATTERED),
        Await(Lane.COMPUTE, GATHERED_AGAIN),
        *(item for c in columns for item in weight_gradient(s, s.tokens, depth, c)),
        *after,
        Await(Lane.COMPUTE, SCATTERED),
    )


def around(plan: TransformerPlan) -> Item:
    """The gradient that went around a layer's half, added."""
    s = sizes(plan)
    return op("aten::add", B, s.stream, s.stream)


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
