"""Convolutions: sizes of each pass from shapes, FLOPs and bytes, then `model` and `kernels`.

A node keeps no stride and no padding. What they decide is the size of the result, and that follows from the FLOPs:

    FLOPs = 2 N K P Q C/G R S        (forward and each gradient; graph.cost.convolution)

So P Q is FLOPs over the rest, and the stride is the edge's ratio, rounded. The image that a gradient writes is what
the recorded operands leave of the bytes. Three axes are treated as two, of the same number of pixels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from gnnperf.analytic.convolution.kernels import OWN_ITEM_BYTES, depthwise_us, matrix_units_us
from gnnperf.analytic.convolution.model import Algorithms, ConvolutionPass, Convolutions, algorithms
from gnnperf.analytic.gemm.calls import has_rate, plain_dtype, product_us
from gnnperf.analytic.gemm.constants import ANY_KERNELS, of_tables
from gnnperf.analytic.gemm.model import ITEM_BYTES, ProductTime, rate_key
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, known_rows, sized
from gnnperf.graph import UnknownCost

FORWARD, GRAD_INPUT, GRAD_WEIGHT = ConvolutionPass
TURNED_KERNELS = 2  # at least, next to the product, where cuDNN turns tensors to channels last; backward, one more adds
TF32 = True  # torch.backends.cudnn.allow_tf32 is True by default (torch 1.7 and later)
DIGITS = 6  # of an edge that follows from FLOPs
Shape = tuple[int, ...]
Sizes = Callable[[KernelCall], tuple[float, ...]]
WIDTH = len(Convolutions.__dataclass_fields__)


def _geometry(image: Shape, weight: Shape, result_pixels: float) -> tuple[float, ...]:
    """Fields of Convolutions for an image [N, C, ...], a weight [K, C/G, ...] and P Q."""
    rank = len(weight) - 2
    if rank < 1 or len(image) != len(weight) or not min(*image, *weight) or not 0 < result_pixels < np.inf:
        raise UnknownCost
    groups = image[1] / weight[1]
    pixels = float(prod(image[2:]))
    height, width = (float(image[2]), pixels / image[2])
    window_height, window_width = float(weight[2]), float(prod(weight[3:]))
    stride = max(round((pixels / result_pixels) ** (1.0 / rank)), 1) ** (rank / 2.0)
    shrunk = (result_pixels / pixels) ** 0.5
    return (float(image[0]), float(image[1]), float(weight[0]), height, width, window_height, window_width,
            round(height * shrunk, DIGITS), round(width * shrunk, DIGITS), stride, groups)  # fmt: skip


def _forward(call: KernelCall) -> tuple[float, ...]:
    """convolution(input, weight, ...)."""
    parsed = call.parsed()
    image, weight = parsed.tensor(0).shape, parsed.tensor(1).shape
    return _geometry(image, weight, call.flops / (2.0 * image[0] * weight[0] * prod(weight[1:]) or 1.0))


def _from_tensors(image: int, weight: int, result: int) -> Sizes:
    """All three tensors are arguments: convolution_backward(grad_output, input, weight, ...) and cuDNN's own."""

    def sizes(call: KernelCall) -> tuple[float, ...]:
        parsed = call.parsed()
        pixels = float(prod(parsed.tensor(result).shape[2:]))
        return _geometry(parsed.tensor(image).shape, parsed.tensor(weight).shape, pixels)

    return sizes


def _from_gradient(grad_at: int, weight_at: int) -> Sizes:
    """The image that is written has what grad [N, K, ...] and weight [K, C, ...] leave of the bytes; one group."""

    def sizes(call: KernelCall) -> tuple[float, ...]:
        grad, weight = (call.parsed().tensor(at).shape for at in (grad_at, weight_at))
        pixels = (call.moved_bytes / call.item_bytes - prod(grad) - prod(weight)) / ((grad[0] * weight[1]) or 1.0)
        if len(grad) < 3 or not pixels >= 1.0 or not prod(grad[2:]):
            raise UnknownCost
        edge = round(pixels ** (1.0 / (len(grad) - 2)))
        image = (grad[0], weight[1], *[edge] * (len(grad) - 2))
        return _geometry(image, weight, float(prod(grad[2:])))

    return sizes


def _weight(call: KernelCall) -> tuple[float, ...]:
    """convolution_backward_weight(weight_size, grad_output, input, ...): the window follows from the FLOPs."""
    parsed = call.parsed()
    grad, image = parsed.tensor(1).shape, parsed.tensor(2).shape
    taps = call.flops / (2.0 * prod(grad) * image[1] or 1.0)  # R S, of one group
    if not taps >= 1.0:
        raise UnknownCost  # fewer FLOPs than one tap takes: several groups, whose number is not recorded
    edge = max(round(taps ** (1.0 / (len(image) - 2))), 1)
    return _geometry(image, (grad[1], image[1], *[edge] * (len(image) - 2)), float(prod(grad[2:])))


TORCHS_DEPTHWISE = ("aten::_conv_depthwise2d", "aten::conv_depthwise3d")
_BACKENDS = ("cudnn", "miopen", "mkldnn")
_FORWARD = ("aten::convolution", "aten::_convolution", "aten::convolution_overrideable", "aten::conv1d", "aten::conv2d",
            "aten::conv3d", "aten::cudnn_convolution_relu", "aten::thnn_conv2d", "aten::_slow_conv2d_forward",
            *(f"aten::{b}_convolution" for b in _BACKENDS), *TORCHS_DEPTHWISE)  # fmt: skip
PASS_OF: Mapping[str, tuple[ConvolutionPass, Sizes]] = {
    **dict.fromkeys(_FORWARD, (FORWARD, _forward)),
    # (input [N, K, P, Q], weight [K, C, R, S], ...): the gradient of an image of C channels
    **{f"aten::{b}_convolution_transpose": (GRAD_INPUT, _from_gradient(0, 1)) for b in _BACKENDS},
    **{f"aten::{b}_convolution_backward": (GRAD_WEIGHT, _from_tensors(0, 2, 1)) for b in _BACKENDS},
    # (input_size, grad_output, weight, ...)
    **{f"aten::{b}_convolution_backward_input": (GRAD_INPUT, _from_gradient(1, 2)) for b in _BACKENDS},
    **{f"aten::{b}_convolution_backward_weight": (GRAD_WEIGHT, _weight) for b in _BACKENDS},
}
BOTH, SIZES_OF_BOTH = "aten::convolution_backward", _from_tensors(1, 2, 0)


def convolutions_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of convolutions, with one floor; NaN: another op, sizes that do not follow, or a dtype without a rate."""
    result = np.zeros(len(calls))
    covered = np.zeros(len(calls), bool)
    for which in ConvolutionPass:
        rows = np.array([r for r, call in enumerate(calls) if which in passes(call)], dtype=np.intp)
        own_us = _pass_us([calls[r] for r in rows], which, setting)
        result[rows] += own_us - setting.device.launch_floor_us * covered[rows]
        covered[rows] = True
    return np.where(covered, result, np.nan)


def passes(call: KernelCall) -> tuple[ConvolutionPass, ...]:
    """Which products a call is: by the FLOPs, convolution_backward gives one gradient or two."""
    if call.op_name == BOTH:
        try:
            parsed = call.parsed()
            one = 2.0 * parsed.tensor(0).numel * prod(parsed.tensor(2).shape[1:])
        except UnknownCost:
            return ()
        return (GRAD_INPUT, GRAD_WEIGHT) if call.flops > 1.5 * one else (GRAD_WEIGHT,)  # first layers: weight only
    return (PASS_OF[call.op_name][0],) if call.op_name in PASS_OF else ()


def _pass_us(calls: Sequence[KernelCall], which: ConvolutionPass, setting: Setting) -> Array:
    """[n] us on the units that each dtype is multiplied with: see `gnnperf.analytic.convolution.model`."""
    sizes = sized(calls, convolution_size, WIDTH)
    result = np.full(len(calls), np.nan)
    dtypes = np.array([plain_dtype(call.known_dtype) for call in calls])
    for dtype in map(str, np.unique(dtypes)):
        rows = np.intersect1d(np.flatnonzero(dtypes == dtype), known_rows(sizes))
        if not len(rows) or not has_rate(setting.device, dtype, TF32):
            continue
        requested = Convolutions(*sizes[rows].T)
        if rate_key(setting.device, dtype, TF32).endswith("_matrix"):
            turned = np.array([turned_share(calls[r]) for r in rows])  # [rows]
            products_us = convolved_us(setting, dtype, TF32)
            whole = np.array([has_pixels_as_rows(calls[r]) for r in rows], bool)  # [rows]
            result[rows] = matrix_units_us(requested, which, turned, ITEM_BYTES[dtype], setting, products_us, whole)
        else:
            result[rows] = lanes_algorithms(requested, which, dtype, setting).fastest_us(setting.convolution)
        depthwise = (requested.groups > 1) & (requested.groups == requested.in_channels)
        own = np.array([has_torchs_kernel(calls[r]) for r in rows], bool)  # [rows]
        result[rows] = np.where(depthwise, depthwise_us(requested, which, own, ITEM_BYTES[dtype], setting),
                                result[rows])  # fmt: skip
    return result


def has_torchs_kernel(call: KernelCall) -> bool:
    """Whether a depthwise convolution is torch's own, not cuDNN's; ops around either are torch's in 16 bits."""
    own = "cudnn" not in call.op_name and call.item_bytes == OWN_ITEM_BYTES and call.num_kernels <= len(passes(call))
    return own or call.op_name in TORCHS_DEPTHWISE


def has_pixels_as_rows(call: KernelCall) -> bool:
    """Whether images are channels last: no kernel adds up their parts of the weight's gradient."""
    return call.op_name == BOTH and call.num_kernels == len(passes(call)) == 2


def turned_share(call: KernelCall) -> float:
    """Share of a call's products with tensors turned to channels last, by the number of kernels."""
    products = len(passes(call))
    kernels = call.num_kernels - 1 - (call.op_name == BOTH)
    return min(max(kernels, 0) // TURNED_KERNELS, products) / products


def lanes_algorithms(calls: Convolutions, which: ConvolutionPass, dtype: str, setting: Setting) -> Algorithms:
    """What every algorithm takes without matrix units."""
    return algorithms(calls, which, ITEM_BYTES[dtype], setting.device, setting.memory, convolved_us(setting, dtype))


def convolved_us(setting: Setting, dtype: str, tf32: bool = False) -> ProductTime:
    """The products inside cuDNN's kernels, as all sets of cuBLAS's in the mean: they are not the generation's own."""
    every = {family: tuple(replace(member, kernels=ANY_KERNELS) for member in members if of_tables(member))
             if family.startswith("vector") else members for family, members in setting.gemm.items()}  # fmt: skip
    return product_us(replace(setting, gemm=every), dtype, tf32)


def convolution_size(call: KernelCall) -> tuple[float, ...]:
    """Fields of Convolutions. Raises UnknownCost: shapes and FLOPs that do not determine them."""
    return (SIZES_OF_BOTH if call.op_name == BOTH else PASS_OF[call.op_name][1])(call)
