"""What N equal calls are as one batched call (HFTA: Wang et al. 2021, "Horizontally Fused Training Array", table 2).

N x linear [8,5] x [7,5]           baddbmm [N,1,7], [N,8,5], [N,5,7]
N x conv2d [8,3,9,9], [6,3,3,3]    conv2d [8,3N,9,9], [6N,3,3,3]: N times the groups
N x add [8,5], [8,5]               add [8N,5], [8N,5]
N x embedding [100,4], [8]         embedding [100N,4], [8N]: indices with an offset per model
"""

from __future__ import annotations

from math import prod

from gnnperf.generate import Argument, Shape, each, tensors
from gnnperf.whatif.batch_sizes import WEIGHTS, op_of

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution")
CHANNELS_SECOND = (*CONVOLUTIONS, "convolution_backward", "batch_norm", "native_batch_norm", "cudnn_batch_norm",
                   "native_batch_norm_backward", "cudnn_batch_norm_backward", "max_pool2d", "avg_pool2d",
                   "max_pool2d_with_indices", "adaptive_avg_pool2d", "_adaptive_avg_pool2d")  # fmt: skip
ANY = -1  # a size that shapes of inputs do not tell
Call = tuple[str, tuple[Argument, ...]]


def batched(name: str, arguments: tuple[Argument, ...], times: int) -> Call:
    """Name and shapes of one call that does the work of `times`."""
    op = op_of(name)
    if op in ("mm", "linear", "addmm") and _plain(op, arguments):
        return _product(op, arguments, times)
    weights = WEIGHTS.get(op, ())
    if op in CHANNELS_SECOND:
        return name, tuple(
            each(one, lambda shape, at=place: _channels(shape, times, is_weight=at in weights))  # type: ignore[misc]
            for place, one in enumerate(arguments)
        )
    kept = () if "embedding" in op else weights
    return name, tuple(
        one if place in kept else each(one, lambda shape: _leading(shape, times)) for place, one in enumerate(arguments)
    )


def _plain(op: str, arguments: tuple[Argument, ...]) -> bool:
    """Whether both factors are known; those of addmm come after what is added."""
    factors = arguments[1:3] if op == "addmm" else arguments[:2]
    shapes = [tensors(one)[0] for one in factors if len(tensors(one)) == 1]
    return len(shapes) == 2 and len(shapes[1]) == 2 and len(shapes[0]) > 1


def _product(op: str, arguments: tuple[Argument, ...], times: int) -> Call:
    left, right = (tensors(one)[0] for one in (arguments[1:3] if op == "addmm" else arguments[:2]))
    rows, inner = prod(left[:-1]), left[-1]
    columns = right[0] if op == "linear" else right[1]
    factors: tuple[Argument, ...] = ((times, rows, inner), (times, inner, columns))
    added = op == "addmm" or (op == "linear" and len(arguments) > 2 and bool(arguments[2]))
    return ("aten::baddbmm", ((times, 1, columns), *factors)) if added else ("aten::bmm", factors)


def _leading(shape: Shape, times: int) -> Shape:
    return (shape[0] * times, *shape[1:]) if shape else shape


def _channels(shape: Shape, times: int, *, is_weight: bool) -> Shape:
    """Data [samples, channels, ...] have more channels; so have weights and statistics [channels, ...]."""
    if is_weight or len(shape) < 2:
        return _leading(shape, times)
    return (shape[0], shape[1] * times, *shape[2:])


def result(name: str, arguments: tuple[Argument, ...]) -> Shape | None:
    """The shape of what a call makes, ANY for sizes that its inputs do not tell; None: not known at all."""
    op, shapes = op_of(name), [tensors(one)[0] if len(tensors(one)) == 1 else () for one in arguments]
    first, second, third = (*shapes, (), (), ())[:3]
    if op == "linear" and first and len(second) == 2:
        return (*first[:-1], second[0])
    if op in ("mm", "bmm") and first and second:
        return (*first[:-1], second[-1])
    if op in ("addmm", "baddbmm") and second and third:
        return (*second[:-1], third[-1])
    if op in CONVOLUTIONS and first and second:
        return (first[0], second[0], *[ANY] * (len(first) - 2))
    if op == "embedding" and len(first) == 2 and second:
        return (*second, first[1])
    if op == "embedding_bag" and len(first) == 2 and second:
        return (third[0] if third and len(second) == 1 else second[0], first[1])
    return None


def may_be(shape: Shape, pattern: Shape) -> bool:
    """Whether a tensor of this shape may be the result."""
    return len(shape) == len(pattern) and all(a == b or b == ANY for a, b in zip(shape, pattern, strict=True))
