"""Scaled dot-product attention, forward and backward, in the layouts of the flash, efficient, cuDNN, CPU and math ops.

FLOPs as in torch.utils.flop_counter (two products forward, five backward; softmax not counted), except that a causal
mask recorded as true counts only the pairs that are not masked, because the fused kernels skip the rest (Dao 2023,
FlashAttention-2, section 3.1). Bytes: q, k, v, output and gradients once; the scores stay on chip (Dao et al. 2022).
"""

from math import prod
from typing import NamedTuple

from gnnperf.core import OpFamily
from gnnperf.graph.cost.elementwise import RANDOM_FLOPS
from gnnperf.graph.cost.op_call import Formula, OpCall, Tensor, UnknownCost, Work, total_bytes

DROPOUT = 4  # number of the argument of scaled_dot_product_attention
BACKWARD_PRODUCTS_QK, BACKWARD_PRODUCTS_V = 3, 2  # scores, dQ, dK over the head dimension of q; dP, dV over that of v


class Layout(NamedTuple):
    """Argument numbers of an attention op."""

    first: int  # number of q; k and v follow
    heads_first: bool  # [batch, heads, length, dim] if true, else [batch, length, heads, dim]
    causal: int | None = None  # argument number of the flag; None if the op has none
    # argument number of the cumulative lengths of a packed batch, whose lengths are not recorded
    packed: int | None = None
    # the texts of `causal` that mean masked (flags, or mask kinds of the efficient kernels)
    causal_values: tuple[str, ...] = ("True", "true")
    lower_right: bool = False  # the mask is aligned at the last query and key (FlashAttention 2.1), not at the first


class Sizes(NamedTuple):
    """Sizes of one attention call: number of (batch, head) pairs, visible query-key pairs in each, head dimensions."""

    heads: int
    pairs: float
    head_dim: int
    value_dim: int


def _sizes(call: OpCall, layout: Layout) -> Sizes:
    q, k, v = (call.tensor(layout.first + i) for i in range(3))
    if min(len(q.shape), len(k.shape), len(v.shape)) < 3:
        raise UnknownCost
    if layout.packed is not None and call.optional(layout.packed) is not None:
        raise UnknownCost  # lengths of the packed sequences are data, not shapes
    length_at, heads_at = (-2, -3) if layout.heads_first else (-3, -2)
    q_length, k_length = q.shape[length_at], k.shape[length_at]
    heads = prod(q.shape[:-3]) * (q.shape[heads_at] if len(q.shape) > 3 or not layout.heads_first else q.shape[0])
    masked = layout.causal is not None and call.text(layout.causal) in layout.causal_values
    pairs = float(q_length * k_length)
    if masked:  # aligned at the top left: query i sees keys 0..i
        diagonal = min(q_length, k_length)
        more = max(k_length - q_length, 0) * q_length if layout.lower_right else max(q_length - k_length, 0) * k_length
        pairs = diagonal * (diagonal + 1) / 2 + more
    return Sizes(heads, pairs, q.shape[-1], v.shape[-1])


def _fused(layout: Layout, products_qk: float, products_v: float, passes: float) -> Formula:
    """Formula of a fused op with so many products over the head dimension and over that of values."""

    def formula(call: OpCall) -> Work:
        n = _sizes(call, layout)
        q, k, v = (call.tensor(layout.first + i) for i in range(3))
        out = Tensor((*q.shape[:-1], v.shape[-1]), q.dtype)
        width = products_qk * n.head_dim + products_v * n.value_dim
        return Work(2.0 * n.heads * n.pairs * width, passes * total_bytes(q, k, v, out))

    return formula


def forward(layout: Layout) -> Formula:
    """Formula of a fused forward op."""
    return _fused(layout, 1.0, 1.0, 1.0)


def math_forward(call: OpCall) -> Work:
    """The unfused form writes and reads the scores: product, scale, softmax, product (two extra passes each way)."""
    work = forward(Layout(first=0, heads_first=True))(call)
    q, k = call.tensor(0), call.tensor(1)
    scores = prod(q.shape[:-1]) * k.shape[-2] * q.item_bytes
    return Work(work.flops, work.bytes + 4.0 * scores)


def whole(call: OpCall) -> Work:
    """scaled_dot_product_attention: fused, but with dropout in parts on CPUs, with a random number per score."""
    if call.text(DROPOUT).strip("0.") == "":  # none, or not recorded
        return forward(Layout(0, True, causal=5))(call)
    n, work = _sizes(call, Layout(0, True)), math_forward(call)
    return Work(work.flops + RANDOM_FLOPS * n.heads * n.pairs, work.bytes)


def backward(layout: Layout) -> Formula:
    """Formula of a fused backward op (grad_output, q, k, v, ...): reads q, k, v, out, dO; writes dQ, dK, dV."""
    return _fused(layout, BACKWARD_PRODUCTS_QK, BACKWARD_PRODUCTS_V, 2.0)


CAUSAL_KINDS = ("1", "2")  # efficient kernels' custom_mask_type: causal from top left, causal from bottom right

_ATTENTION: dict[str, Formula] = {
    "aten::scaled_dot_product_attention": whole,
    "aten::_scaled_dot_product_attention_math": math_forward,
    "aten::_scaled_dot_product_flash_attention": forward(Layout(0, True, causal=4, lower_right=True)),
    "aten::_scaled_dot_product_flash_attention_for_cpu": forward(Layout(0, True, causal=4)),
    "aten::_scaled_dot_product_efficient_attention": forward(Layout(0, True, causal=6)),
    "aten::_scaled_dot_product_cudnn_attention": forward(Layout(0, True, causal=6)),
    "aten::_scaled_dot_product_fused_attention_overrideable": forward(Layout(0, True, causal=5)),
    "aten::_flash_attention_forward": forward(Layout(0, False, causal=8, packed=3, lower_right=True)),
    "aten::_efficient_attention_forward": forward(Layout(0, False, 9, packed=4, causal_values=CAUSAL_KINDS)),
    "aten::_scaled_dot_product_flash_attention_backward": backward(Layout(1, True, 11, packed=6, lower_right=True)),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": backward(Layout(1, True, causal=7)),
    "aten::_scaled_dot_product_efficient_attention_backward": backward(Layout(1, True, causal=11)),
    "aten::_scaled_dot_product_cudnn_attention_backward": backward(Layout(1, True, causal=14)),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": backward(Layout(1, True, causal=13)),
    "aten::_flash_attention_backward": backward(Layout(1, False, causal=11, packed=6, lower_right=True)),
    "aten::_efficient_attention_backward": backward(Layout(1, False, 14, packed=6, causal_values=CAUSAL_KINDS)),
}
FORMULAS: dict[OpFamily, dict[str, Formula]] = {OpFamily.ATTENTION: _ATTENTION}
