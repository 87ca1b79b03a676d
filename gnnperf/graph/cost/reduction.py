"""Reductions, scans, sorts and pooling."""

from math import prod

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import Formula, OpCall, Tensor, UnknownCost, Work, of_ops, total_bytes

# Normalization and softmax: bytes are passes over the activation; FLOPs per element are counted from the definitions.
#
# A pass that needs a statistic over more than one cache line's worth of the tensor (batch, group) reads it twice; layer
# and softmax rows are kept on chip between their passes.

FORWARD_FLOPS = 8.0  # mean 1, variance 3, normalize 2, scale and shift 2
RMS_FLOPS = 4.0  # square 2, scale 2
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
    """native_group_norm(input, weight, bias, N, C, HxW, group, eps); a group's mean and deviation are written, too."""
    x, text = call.tensor(0), call.text(6)
    channels = x.shape[1] if len(x.shape) > 1 else 0
    groups = int(text) if text.isdecimal() and len(text) <= len(str(channels)) else 0  # the text comes from a trace
    statistics = Tensor((2 * x.shape[0] * groups,) if 0 < groups <= channels else (0,), x.dtype)
    return _passes(x, 2, FORWARD_FLOPS, call.optional(1), call.optional(2), statistics)


def _norm(reads: int, flops: float, *small: int) -> Formula:
    """norm(input, ...): `reads` passes over the activation; scale and shift are the arguments of numbers `small`."""
    return lambda call: _passes(call.tensor(0), reads, flops, *map(call.optional, small))


def _backward(flops: float, reads: int) -> Formula:
    """(grad_output, input or output, ...) or (input, grad_output, ...): each read `reads` times, grad_input written."""

    def formula(call: OpCall) -> Work:
        first, second = call.tensor(0), call.tensor(1)
        return Work(flops * second.numel, reads * total_bytes(first, second) + second.num_bytes)

    return formula


def softmax(call: OpCall) -> Work:
    """_softmax(input, dim, half_to_float at 2)."""
    x = call.tensor(0)
    written = x.numel * (4 if call.text(2) == "True" else x.item_bytes)
    return Work(SOFTMAX_FLOPS * x.numel, float(x.num_bytes + written))


def reduction(flops: float, dims_at: int | None = 1) -> Formula:
    """reduce(input, dims, keepdim, ...): the input read once, the result written once."""

    def formula(call: OpCall) -> Work:
        x = call.tensor(0)
        return Work(flops * x.numel, float(x.num_bytes + _retained(call, x, dims_at) * x.item_bytes))

    return formula


def _retained(call: OpCall, x: Tensor, dims_at: int | None) -> int:
    """Elements of the result. Where the reduced axes are not recorded the (smaller) result is left out."""
    if dims_at is None or len(call.tensors) <= dims_at or (call.values and not call.text(dims_at)):
        return 1
    try:
        axes = call.integers(dims_at)
    except UnknownCost:
        return 0
    if not axes:
        return 1
    rank = len(x.shape)
    gone = {a % rank for a in axes} if rank else set()
    return prod(n for d, n in enumerate(x.shape) if d not in gone)


def sort(call: OpCall) -> Work:
    """sort(input, ...): values and int64 positions. Radix sort on 4-bit digits passes over both (NVIDIA CUB)."""
    x = call.tensor(0)
    passes = 2.0 * x.item_bytes
    return Work(0.0, passes * 2.0 * x.numel * (x.item_bytes + 8))


def topk(call: OpCall) -> Work:
    """topk(input, k, dim, ...): radix select reads the input about once per 2-bit digit pair; the result is small."""
    x = call.tensor(0)
    return Work(0.0, 4.0 * x.num_bytes)


def pool_forward(call: OpCall) -> Work:
    """max_pool2d_with_indices / avg_pool2d(input, kernel, stride, padding, ...)."""
    x = call.tensor(0)
    kernel, stride, padding = call.integers(1), call.integers(2), call.integers(3)
    stride = stride or kernel
    spatial = len(x.shape) - 2 if len(x.shape) > 3 else len(x.shape) - 1
    retained = x.shape[: len(x.shape) - spatial]
    sizes = [
        (n + 2 * padding[d % len(padding)] - kernel[d % len(kernel)]) // stride[d % len(stride)] + 1
        for d, n in enumerate(x.shape[len(retained) :])
    ]
    window = prod(kernel[d % len(kernel)] for d in range(spatial))
    out = prod(retained) * prod(sizes)
    index_bytes = 8 if "max_pool" in call.name else 0
    return Work(float(window * out), float(x.num_bytes + out * (x.item_bytes + index_bytes)))


def pool_backward(call: OpCall) -> Work:
    """pool_backward(grad_output, input, ..., [indices last]): grad and indices read, grad_input zeroed and added to."""
    grad, x = call.tensor(0), call.tensor(1)
    indices = grad.numel * 8 if "max_pool" in call.name else 0
    return Work(float(grad.numel), grad.num_bytes + indices + 2.0 * x.num_bytes)


def adaptive_pool(call: OpCall) -> Work:
    """_adaptive_avg_pool2d(input, output_size)."""
    x, size = call.tensor(0), call.integers(1)
    out = prod(x.shape[: len(x.shape) - len(size)]) * prod(size)
    return Work(float(x.numel), float(x.num_bytes + out * x.item_bytes))


def upsample(call: OpCall) -> Work:
    """upsample_*(input, output_size, ...): the input read once, the result written once."""
    x, size = call.tensor(0), call.integers(1)
    out = prod(x.shape[:2]) * prod(size)
    return Work(4.0 * out, float(x.num_bytes + out * x.item_bytes))


def upsample_backward(call: OpCall) -> Work:
    """upsample_*_backward(grad_output, output_size, input_size, ...): read once, the input's gradient written once."""
    grad, size = call.tensor(0), call.integers(2)
    return Work(4.0 * grad.numel, float(grad.num_bytes + prod(size) * grad.item_bytes))


REDUCED = {"sum": 1.0, "mean": 1.0, "amax": 1.0, "amin": 1.0, "prod": 1.0, "nansum": 1.0, "max": 1.0, "min": 1.0,
           "argmax": 1.0, "argmin": 1.0, "any": 1.0, "all": 1.0, "std": 4.0, "var": 4.0, "var_mean": 4.0,
           "logsumexp": 12.0, "median": 1.0, "aminmax": 2.0}  # fmt: skip

_BATCH_NORMS = """
native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit _batch_norm_with_update batch_norm
_batch_norm_impl_index
"""
_NORM_BACKWARDS = """
native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward batch_norm_backward
native_group_norm_backward native_layer_norm_backward _fused_rms_norm_backward
"""
_POOL_BACKWARDS = """
max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward avg_pool3d_backward
_adaptive_avg_pool2d_backward
"""
FORMULAS: dict[OpFamily, dict[str, Formula]] = {
    OpFamily.NORM: {
        **of_ops(_BATCH_NORMS, batch_norm),
        **of_ops(_NORM_BACKWARDS, _backward(BACKWARD_FLOPS, reads=2)),
        "aten::native_group_norm": group_norm,
        "aten::group_norm": _norm(2, FORWARD_FLOPS, 2, 3),
        **of_ops("native_layer_norm layer_norm", _norm(1, FORWARD_FLOPS, 2, 3)),
        **of_ops("_fused_rms_norm rms_norm", _norm(1, RMS_FLOPS, 2)),
        "FusedLayerNormAffineFunction": _norm(1, FORWARD_FLOPS, 1, 2),  # apex.normalization
        "FusedRMSNormAffineFunction": _norm(1, RMS_FLOPS, 1),
        # gradient(grad_output), which reads the input as well; each is read twice
        **of_ops("LayerNormAffineFunctionBackward RMSNormAffineFunctionBackward", _norm(4, BACKWARD_FLOPS), "Fused"),
    },
    OpFamily.SOFTMAX: {
        **of_ops("_softmax _log_softmax _safe_softmax softmax log_softmax", softmax),
        **of_ops("_softmax_backward_data _log_softmax_backward_data", _backward(SOFTMAX_BACKWARD_FLOPS, reads=1)),
    },
    OpFamily.REDUCTION: {
        **{f"aten::{name}": reduction(flops) for name, flops in REDUCED.items()},
        **of_ops("norm linalg_vector_norm", reduction(2.0, dims_at=2)),
        **of_ops("sort argsort", sort),
        "aten::topk": topk,
        # counts, then writes positions; how many is data, so only the two passes over the input count
        "aten::nonzero": lambda call: Work(0.0, 2.0 * total_bytes(call.tensor(0))),
    },
    OpFamily.POOLING: {
        **of_ops(
            "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d mkldnn_max_pool2d", pool_forward
        ),
        **of_ops(_POOL_BACKWARDS, pool_backward),
        "aten::_adaptive_avg_pool2d": adaptive_pool,
        **of_ops("upsample_nearest1d upsample_nearest2d upsample_bilinear2d", upsample),
        **of_ops("upsample_nearest2d_backward upsample_bilinear2d_backward", upsample_backward),
    },
}
