"""Reductions, scans, sorts and pooling."""

from __future__ import annotations

from math import prod

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import OpCall, Tensor, UnknownCost
from gnnperf.graph.cost.recurrent import Formula, Work, total_bytes


def reduction(flops: float, dims_at: int | None = 1) -> Formula:
    """reduce(input, dims, keepdim, ...): the input read once, the result written once."""

    def formula(call: OpCall) -> Work:
        x = call.tensor(0)
        retained, assumed = _retained(call, x, dims_at)
        return Work(flops * x.numel, float(x.num_bytes + retained * x.item_bytes), assumed)

    return formula


def _retained(call: OpCall, x: Tensor, dims_at: int | None) -> tuple[int, tuple[str, ...]]:
    """Elements of the result. Where the reduced axes are not recorded the (smaller) result is left out, and says so."""
    if dims_at is None or len(call.tensors) <= dims_at or (call.values and not call.text(dims_at)):
        return 1, ()
    try:
        axes = call.integers(dims_at)
    except UnknownCost:
        return 0, ("bytes of a reduction's result left out",)
    if not axes:
        return 1, ()
    rank = len(x.shape)
    gone = {a % rank for a in axes} if rank else set()
    return prod(n for d, n in enumerate(x.shape) if d not in gone), ()


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


def nonzero(call: OpCall) -> Work:
    """nonzero(input): counts, then writes positions; how many is data, so only the two passes over the input count."""
    return Work(0.0, 2.0 * total_bytes(call.tensor(0)), ("bytes of nonzero's result left out",))


REDUCED = {"sum": 1.0, "mean": 1.0, "amax": 1.0, "amin": 1.0, "prod": 1.0, "nansum": 1.0, "max": 1.0, "min": 1.0,
           "argmax": 1.0, "argmin": 1.0, "any": 1.0, "all": 1.0, "std": 4.0, "var": 4.0, "var_mean": 4.0,
           "logsumexp": 12.0, "median": 1.0, "aminmax": 2.0}  # fmt: skip

REDUCTION_FORMULAS: dict[str, Formula] = {
    **{f"aten::{name}": reduction(flops) for name, flops in REDUCED.items()},
    "aten::norm": reduction(2.0, dims_at=2),
    "aten::linalg_vector_norm": reduction(2.0, dims_at=2),
    "aten::sort": sort,
    "aten::argsort": sort,
    "aten::topk": topk,
    "aten::nonzero": nonzero,
}

POOLING_FORMULAS: dict[str, Formula] = {
    "aten::max_pool2d_with_indices": pool_forward,
    "aten::max_pool3d_with_indices": pool_forward,
    "aten::avg_pool2d": pool_forward,
    "aten::avg_pool3d": pool_forward,
    "aten::max_pool2d_with_indices_backward": pool_backward,
    "aten::max_pool3d_with_indices_backward": pool_backward,
    "aten::avg_pool2d_backward": pool_backward,
    "aten::avg_pool3d_backward": pool_backward,
    "aten::_adaptive_avg_pool2d": adaptive_pool,
    "aten::_adaptive_avg_pool2d_backward": pool_backward,
    "aten::mkldnn_max_pool2d": pool_forward,
    "aten::upsample_nearest1d": upsample,
    "aten::upsample_nearest2d": upsample,
    "aten::upsample_bilinear2d": upsample,
}

REDUCTION_FAMILY, POOLING_FAMILY = OpFamily.REDUCTION, OpFamily.POOLING
