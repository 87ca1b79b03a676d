"""Convolutions, forward and backward, in the argument orders of aten, cuDNN, MIOpen and oneDNN.

FLOPs as in torch.utils.flop_counter: 2 x (elements on the small side) x (weight elements per channel of that side); the
weight already has input channels / groups in its second place, so groups cancel.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import prod

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import Formula, OpCall, Tensor, UnknownCost, Work, of_ops, total_bytes


@dataclass(frozen=True)
class Places:
    """Where an op keeps its geometry: argument numbers; None where the op has no such argument."""

    stride: int
    padding: int
    dilation: int | None = None
    transposed: int | None = None
    output_padding: int | None = None
    groups: int | None = None


ATEN = Places(stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8)
PLAIN = Places(stride=3, padding=4, dilation=5)  # conv1d/2d/3d
CUDNN = Places(stride=3, padding=2, dilation=4)  # (input, weight, padding, stride, dilation, ...)
ONEDNN = Places(stride=4, padding=3, dilation=5)  # (input, weight, bias, padding, stride, dilation, ...), MIOpen too
SLOW = Places(stride=4, padding=5, dilation=6)  # (input, weight, kernel_size, bias, stride, padding, [dilation])
CUDNN_TRANSPOSE = Places(stride=4, padding=2, dilation=5, output_padding=3, groups=6)
MIOPEN_TRANSPOSE = Places(stride=5, padding=3, dilation=6, output_padding=4, groups=7)


def work(small: Tensor, weight: Tensor, *touched: Tensor | None) -> Work:
    """2 x elements of `small` x weight elements per channel of `small` (its dimension 1, weight's dimension 0)."""
    if len(weight.shape) < 3 or len(small.shape) != len(weight.shape):
        raise UnknownCost
    per_channel = prod(weight.shape[1:])
    return Work(2.0 * small.numel * per_channel, total_bytes(*touched))


def forward(places: Places, bias: int | None) -> Formula:
    """Formula of a forward convolution (input, weight, ...)."""

    def formula(call: OpCall) -> Work:
        x, weight = call.tensor(0), call.tensor(1)
        if places.transposed is not None and call.is_true(places.transposed):
            return transposed(call, places)
        y = Tensor((x.shape[0], weight.shape[0], *_output_spatial(call, places, x, weight)), x.dtype)
        return work(y, weight, x, weight, y, None if bias is None else call.optional(bias))

    return formula


def transposed(call: OpCall, places: Places) -> Work:
    """Of a transposed convolution (input, weight [in, out / groups, ...], ...)."""
    x, weight = call.tensor(0), call.tensor(1)
    stride, padding = call.integers(places.stride), call.integers(places.padding)
    dilation = call.integers(places.dilation) if places.dilation is not None else (1,)
    extra = call.integers(places.output_padding) if places.output_padding is not None else (0,)
    groups = call.integers(places.groups)[0] if places.groups is not None else 1
    spatial = tuple(
        (n - 1) * _at(stride, d) - 2 * _at(padding, d) + _at(dilation, d) * (k - 1) + _at(extra, d) + 1
        for d, (n, k) in enumerate(zip(x.shape[2:], weight.shape[2:], strict=True))
    )
    y = Tensor((x.shape[0], weight.shape[1] * groups, *spatial), x.dtype)
    return work(x, weight, x, weight, y)  # the input is the small side


def _output_spatial(call: OpCall, p: Places, x: Tensor, weight: Tensor) -> tuple[int, ...]:
    """Output size by torch.nn.Conv2d's formula; without recorded values: stride 1, "same" padding."""
    if len(x.shape) != len(weight.shape) or len(weight.shape) < 3:
        raise UnknownCost
    if not call.values:  # files before about torch 1.13 record no values
        return x.shape[2:]
    stride, padding = call.integers(p.stride), call.integers(p.padding)
    dilation = call.integers(p.dilation) if p.dilation is not None else (1,)
    sizes = tuple(
        (n + 2 * _at(padding, d) - _at(dilation, d) * (k - 1) - 1) // _at(stride, d) + 1
        for d, (n, k) in enumerate(zip(x.shape[2:], weight.shape[2:], strict=True))
    )
    if min(sizes, default=1) < 1:
        raise UnknownCost
    return sizes


def _at(values: tuple[int, ...], dimension: int) -> int:
    return values[dimension] if len(values) > 1 else values[0] if values else 1


def backward(call: OpCall) -> Work:
    """convolution_backward(grad_output, input, weight, ..., transposed at 7, ..., output_mask at 10)."""
    grad, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    mask = call.text(10)
    wanted = [m.strip(" []") != "False" for m in mask.split(",")] if mask else [True, True]
    small = x if call.is_true(7) else grad
    passes = []
    if wanted[0]:  # gradient of the input
        passes.append(work(small, weight, grad, weight, x))
    if len(wanted) > 1 and wanted[1]:  # gradient of the weight
        passes.append(work(small, weight, grad, x, weight))
    return Work(sum(p.flops for p in passes), sum(p.bytes for p in passes))


def backward_input(call: OpCall) -> Work:
    """cudnn_convolution_backward_input(input_size, grad_output, weight, ...); input_size is written."""
    grad, weight = call.tensor(1), call.tensor(2)
    try:
        x = Tensor(call.integers(0), grad.dtype)
    except UnknownCost:  # no values recorded: batch and spatial size of grad_output (exact for stride 1, groups 1)
        x = Tensor((grad.shape[0], weight.shape[1], *grad.shape[2:]), grad.dtype)
    return work(grad, weight, grad, weight, x)


def backward_weight(call: OpCall) -> Work:
    """cudnn_convolution_backward_weight(weight_size, grad_output, input, ...); weight_size is written."""
    grad, x = call.tensor(1), call.tensor(2)
    weight = Tensor(call.integers(0), grad.dtype)  # files that record no values lose the kernel size here
    return work(grad, weight, grad, x, weight)


def weight_pass_of_parent(call: OpCall) -> Work:
    """cudnn_convolution_backward(input, grad_output, weight, ...) of files that record no values: the weight pass only.

    It encloses backward_input, which knows its own cost, and backward_weight, which lost its kernel size.
    """
    x, grad, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    return work(grad, weight, grad, x, weight)


FORMULAS: dict[OpFamily, dict[str, Formula]] = {
    OpFamily.CONV: {
        **of_ops("convolution _convolution convolution_overrideable", forward(ATEN, bias=2)),
        **of_ops("conv1d conv2d conv3d cudnn_convolution_relu", forward(PLAIN, bias=2)),
        "aten::cudnn_convolution": forward(CUDNN, bias=None),
        **of_ops("miopen_convolution miopen_depthwise_convolution mkldnn_convolution", forward(ONEDNN, bias=2)),
        "mkldnn::_convolution_pointwise": forward(ONEDNN, bias=2),
        **of_ops("thnn_conv2d _slow_conv2d_forward", forward(replace(SLOW, dilation=None), bias=3)),
        **of_ops("_conv_depthwise2d conv_depthwise3d", forward(SLOW, bias=3)),
        "aten::cudnn_convolution_transpose": partial(transposed, places=CUDNN_TRANSPOSE),
        "aten::miopen_convolution_transpose": partial(transposed, places=MIOPEN_TRANSPOSE),
        "aten::convolution_backward": backward,
        **of_ops("cudnn_convolution_backward_input miopen_convolution_backward_input", backward_input),
        **of_ops("cudnn_convolution_backward_weight miopen_convolution_backward_weight", backward_weight),
        **of_ops("cudnn_convolution_backward miopen_convolution_backward", weight_pass_of_parent),
    }
}
