"""Matrix products. FLOPs as in torch.utils.flop_counter (bias not counted); bytes: operands once, result once."""

from __future__ import annotations

from math import prod

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import OpCall, Tensor, UnknownCost
from gnnperf.graph.cost.recurrent import Formula, Work, broadcast, total_bytes

FAMILY = OpFamily.GEMM
SCALED_RESULT_BYTES = 2


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Work:
    """a [..., m, k] times b [..., k, n], broadcast over the leading dimensions."""
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise UnknownCost
    batch = prod(broadcast([a.shape[:-2], b.shape[:-2]]))
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    written = batch * m * n * max(a.item_bytes, b.item_bytes)
    return Work(2.0 * batch * m * k * n, total_bytes(a, b, bias) + written)


def mm(call: OpCall) -> Work:
    """mm(a [m, k], b [k, n]), bmm with a batch."""
    return product(call.tensor(0), call.tensor(1))


def addmm(call: OpCall) -> Work:
    """addmm(bias, a, b), baddbmm with a batch."""
    return product(call.tensor(1), call.tensor(2), call.tensor(0))


def matmul(call: OpCall) -> Work:
    """matmul(a, b): vectors become matrices, the rest broadcasts."""
    a, b = call.tensor(0), call.tensor(1)
    wide_a = Tensor((1, *a.shape), a.dtype) if len(a.shape) == 1 else a
    wide_b = Tensor((*b.shape, 1), b.dtype) if len(b.shape) == 1 else b
    return product(wide_a, wide_b)


def linear(call: OpCall) -> Work:
    """linear(x [..., k], weight [n, k], bias [n])."""
    x, weight = call.tensor(0), call.tensor(1)
    if len(weight.shape) != 2 or not x.shape:
        raise UnknownCost
    rows = Tensor((prod(x.shape[:-1]), x.shape[-1]), x.dtype)
    return product(rows, Tensor(weight.shape[::-1], weight.dtype), call.optional(2))


def scaled_mm(call: OpCall) -> Work:
    """_scaled_mm(a [m, k], b [k, n], scale_a, scale_b, bias, ...): 8-bit operands, a result of 16 bits as a rule."""
    a, b = call.tensor(0), call.tensor(1)
    work = product(a, b)
    written = a.shape[-2] * b.shape[-1] * SCALED_RESULT_BYTES
    return Work(work.flops, total_bytes(a, b) + written, ("result of 16 bits",))


def dot(call: OpCall) -> Work:
    """dot(a [k], b [k])."""
    a, b = call.tensor(0), call.tensor(1)
    return Work(2.0 * a.numel, total_bytes(a, b) + a.item_bytes)


def matrix_vector(call: OpCall) -> Work:
    """mv(a [m, k], x [k])."""
    a, x = call.tensor(0), call.tensor(1)
    return product(a, Tensor((*x.shape, 1), x.dtype))


def grouped_template(call: OpCall) -> Work:
    """Inductor's matrix-product template: (a, b, result, ...) are the kernel's buffers."""
    return product(call.tensor(0), call.tensor(1))


FORMULAS: dict[str, Formula] = {
    "aten::mm": mm,
    "aten::bmm": mm,
    "aten::_scaled_mm": scaled_mm,
    "aten::addmm": addmm,
    "aten::_addmm_activation": addmm,
    "aten::baddbmm": addmm,
    "aten::matmul": matmul,
    "aten::linear": linear,
    "aten::mkldnn_linear": linear,
    "mkldnn::_linear_pointwise": linear,
    "aten::dot": dot,
    "aten::mv": matrix_vector,
}
