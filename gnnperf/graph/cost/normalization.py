"""Normalization and softmax: bytes are passes over the activation; FLOPs per element are counted from the definitions.

A pass that needs a statistic over more than one cache line's worth of the tensor (batch, group) reads it twice; layer
and softmax rows are kept on chip between their passes.
"""

from __future__ import annotations

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import OpCall, Tensor
from gnnperf.graph.cost.recurrent import Formula, Work, total_bytes

FORWARD_FLOPS = 8.0  # mean 1, variance 3, normalize 2, scale and shift 2
EVAL_FLOPS = 4.0  # statistics are given: normalize 2, scale and shift 2
BACKWARD_FLOPS = 14.0  # two reductions (4), their use (6), gradients of scale and shift (4)
SOFTMAX_FLOPS = 13.0  # maximum 1, subtract 1, exponential 10 (see elementwise.TRANSCENDENTAL), sum 1; divide is in it
SOFTMAX_BACKWARD_FLOPS = 4.0  # product, sum, subtract, product


def _passes(tensor: Tensor, reads: int, flops: float, *small: Tensor | None) -> Work:
    """`reads` passes over `tensor`, one result of its size, and the small tensors once."""
    return Work(flops * tensor.numel, (reads + 1.0) * tensor.num_bytes + total_bytes(*small))


def batch_norm(call: OpCall) -> Work:
    """native/cudnn/miopen batch_norm(input, weight, bias, running_mean, running_var, training at 5, ...)."""
    if call.text(5) == "False":
        return _passes(call.tensor(0), 1, EVAL_FLOPS, *(call.optional(i) for i in range(1, 5)))
    return _passes(call.tensor(0), 2, FORWARD_FLOPS, *(call.optional(i) for i in range(1, 5)))


def group_norm(call: OpCall) -> Work:
    """native_group_norm(input, weight, bias, ...)."""
    return _passes(call.tensor(0), 2, FORWARD_FLOPS, call.optional(1), call.optional(2))


def layer_norm(call: OpCall) -> Work:
    """native_layer_norm(input, normalized_shape, weight, bias, eps)."""
    return _passes(call.tensor(0), 1, FORWARD_FLOPS, call.optional(2), call.optional(3))


def rms_norm(call: OpCall) -> Work:
    """rms_norm(input, normalized_shape, weight, eps): square 2, scale 2."""
    return _passes(call.tensor(0), 1, 4.0, call.optional(2))


def _backward(reads: int) -> Formula:
    """(grad_output, input, ...) or (input, grad_output, ...): each read `reads` times, grad_input written."""

    def formula(call: OpCall) -> Work:
        first, second = call.tensor(0), call.tensor(1)
        return Work(BACKWARD_FLOPS * first.numel, reads * total_bytes(first, second) + second.num_bytes)

    return formula


def softmax(call: OpCall) -> Work:
    """_softmax(input, dim, half_to_float at 2)."""
    x = call.tensor(0)
    written = x.numel * (4 if call.text(2) == "True" else x.item_bytes)
    return Work(SOFTMAX_FLOPS * x.numel, float(x.num_bytes + written))


def softmax_backward(call: OpCall) -> Work:
    """_softmax_backward_data(grad_output, output, dim, input_dtype): two read, one written."""
    grad, out = call.tensor(0), call.tensor(1)
    return Work(SOFTMAX_BACKWARD_FLOPS * out.numel, total_bytes(grad, out) + out.num_bytes)


NORM_FORMULAS: dict[str, Formula] = {
    **{
        f"aten::{name}": batch_norm
        for name in (
            "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit",
            "_batch_norm_with_update", "batch_norm", "_batch_norm_impl_index",
        )
    },
    **{
        f"aten::{name}": _backward(reads=2)
        for name in (
            "native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward",
            "batch_norm_backward", "native_group_norm_backward", "native_layer_norm_backward",
            "_fused_rms_norm_backward",
        )
    },
    "aten::native_group_norm": group_norm,
    "aten::group_norm": lambda call: _passes(call.tensor(0), 2, FORWARD_FLOPS, call.optional(2), call.optional(3)),
    "aten::native_layer_norm": layer_norm,
    "aten::layer_norm": layer_norm,
    "aten::_fused_rms_norm": rms_norm,
    "aten::rms_norm": rms_norm,
}  # fmt: skip

SOFTMAX_FORMULAS: dict[str, Formula] = {
    "aten::_softmax": softmax,
    "aten::_log_softmax": softmax,
    "aten::_safe_softmax": softmax,
    "aten::softmax": softmax,
    "aten::log_softmax": softmax,
    "aten::_softmax_backward_data": softmax_backward,
    "aten::_log_softmax_backward_data": softmax_backward,
}

NORM_FAMILY, SOFTMAX_FAMILY = OpFamily.NORM, OpFamily.SOFTMAX
