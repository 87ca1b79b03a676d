"""Between the product that makes queries, keys and values and the one that takes the context: forward, backward.

Unfused: Megatron-LM's CoreAttention (scale, mask and softmax in one kernel; dropout in one). Flash: torch's
scaled_dot_product_attention with its flash kernel, causal, dropout inside; fewer heads of keys are not repeated
(enable_gqa). Rotary positions turn queries and keys by one kernel each, both ways.
"""

from __future__ import annotations

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Attention, Kernels, Positions
from gnnperf.generate.transformer.items import Item, fused, op, views
from gnnperf.generate.transformer.mlp import B
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.graph import Tensor

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
