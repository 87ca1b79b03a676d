"""Gradients of ops as the calls that torch makes of them (derivatives.yaml of PyTorch 2)."""

from collections.abc import Callable, Mapping
from math import prod

from gnnperf.analytic.gemm.calls import EIGHT_BITS, SIZES
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.op_tables.read_tables import OpRow, Shape
from gnnperf.analytic.op_tables.signatures import recorded_call, tensor_call
from gnnperf.graph import UnknownCost

Gradient = Callable[[OpRow], list[KernelCall]]


def gradient_calls(row: OpRow) -> list[KernelCall]:
    """The calls of a row's backward.

    Raises UnknownCost: no formula for the gradient of this op, or shapes that do not determine it.
    """
    result = GRADIENTS.get(row.op)
    if result is None:
        raise UnknownCost
    return result(row)


def _products(row: OpRow) -> list[KernelCall]:
    """Of [m, k] x [k, n]: [m, n] x [n, k] and [k, m] x [m, n]."""
    batch, m, n, k = (int(v) for v in SIZES[row.op](recorded_call(row).parsed()))
    sizes = ((batch, m, n), (batch, n, k)), ((batch, k, m), (batch, m, n))
    return [tensor_call("aten::bmm", pair, row) for pair in sizes]


def _convolution(row: OpRow) -> list[KernelCall]:
    """convolution_backward(grad_output, input, weight); the result's pixels follow from the forward's FLOPs."""
    image, weight = _shape(row, 0), _shape(row, 1)
    forward = recorded_call(row)
    pixels = forward.flops / (2.0 * image[0] * weight[0] * prod(weight[1:]))
    if not pixels >= 1.0:
        raise UnknownCost
    flat = (round(pixels), *[1] * (len(image) - 3))
    return [tensor_call("aten::convolution_backward", ((image[0], weight[0], *flat), image, weight), row)]


def _layer_norm(row: OpRow) -> list[KernelCall]:
    x = _shape(row, 0)
    scale = row.shapes[1] if len(row.shapes) > 1 and row.shapes[1] is not None else x[-1:]
    statistics = (prod(x) // max(prod(scale), 1), 1)
    return [tensor_call("aten::native_layer_norm_backward", (x, x, (), statistics, statistics, scale, scale), row)]


def _same_shape(op: str) -> Gradient:
    return lambda row: [tensor_call(op, (_shape(row, 0), _shape(row, 0)), row)]


def _pool(op: str) -> Gradient:

    def calls(row: OpRow) -> list[KernelCall]:
        x = _shape(row, 0)
        kernel = _edges(row, "kernel_size", None)
        stride, padding = _edges(row, "stride", kernel), _edges(row, "padding", [0, 0])
        pixels = [(n + 2 * p - k) // s + 1 for n, k, s, p in zip(x[-2:], kernel, stride, padding, strict=True)]
        return [tensor_call(op, ((*x[:-2], *pixels), x), row)]

    return calls


def _edges(row: OpRow, name: str, default: list[int] | None) -> list[int]:
    result = row.arguments.get(name) or default
    if not isinstance(result, list) or len(result) != 2:
        raise UnknownCost
    return result


def _attention(op: str) -> Gradient:

    def calls(row: OpRow) -> list[KernelCall]:
        q, k, v = (_shape(row, place) for place in range(3))
        return [tensor_call(op, ((*q[:-1], v[-1]), q, k, v), row)]

    return calls


def _embedding(row: OpRow) -> list[KernelCall]:
    """embedding_dense_backward(grad_output, indices, num_weights)."""
    weight, indices = _shape(row, 0), _shape(row, 1)
    gradient = OpRow("aten::embedding_dense_backward", ((*indices, weight[-1]), indices), row.dtypes[:2],
                     {"num_weights": weight[0]}, access=row.access)  # fmt: skip
    return [recorded_call(gradient)]


def _embedding_bag(row: OpRow) -> list[KernelCall]:
    """_embedding_bag_dense_backward(grad [bags, dim], indices, ..., num_weights); sparse: without the table."""
    weight, indices = _shape(row, 0), _shape(row, 1)
    bags = indices[0] if len(indices) == 2 else _shape(row, 2)[0]
    if row.arguments.get("sparse"):
        return [tensor_call("aten::_embedding_bag_sparse_backward", ((bags, weight[-1]), indices), row, row.dtypes[:2])]
    gradient = OpRow("aten::_embedding_bag_dense_backward", ((bags, weight[-1]), indices), row.dtypes[:2],
                     {"num_weights": weight[0]}, access=row.access)  # fmt: skip
    return [recorded_call(gradient)]


def _shape(row: OpRow, place: int) -> Shape:
    shape = row.shapes[place] if place < len(row.shapes) else None
    if shape is None:
        raise UnknownCost
    return shape


_FLASH = "aten::_scaled_dot_product_flash_attention"
_EFFICIENT = "aten::_scaled_dot_product_efficient_attention"
GRADIENTS: Mapping[str, Gradient] = {
    **dict.fromkeys([op for op in SIZES if op not in EIGHT_BITS], _products),  # 8-bit products have no gradient
    **dict.fromkeys(("aten::convolution", "aten::conv1d", "aten::conv2d", "aten::conv3d"), _convolution),
    **dict.fromkeys(("aten::native_layer_norm", "aten::layer_norm"), _layer_norm),
    **dict.fromkeys(("aten::_softmax", "aten::softmax"), _same_shape("aten::_softmax_backward_data")),
    **dict.fromkeys(("aten::_log_softmax", "aten::log_softmax"), _same_shape("aten::_log_softmax_backward_data")),
    **{f"aten::{name}": _same_shape(f"aten::{name}_backward")
       for name in ("gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "hardtanh", "hardswish", "mish")},
    "aten::native_batch_norm": _same_shape("aten::native_batch_norm_backward"),
    **dict.fromkeys(("aten::max_pool2d", "aten::max_pool2d_with_indices"),
                    _pool("aten::max_pool2d_with_indices_backward")),
    "aten::avg_pool2d": _pool("aten::avg_pool2d_backward"),
    "aten::relu": _same_shape("aten::threshold_backward"),
    **dict.fromkeys((_FLASH, "aten::scaled_dot_product_attention"), _attention(f"{_FLASH}_backward")),
    _EFFICIENT: _attention(f"{_EFFICIENT}_backward"),
    "aten::embedding": _embedding,
    **dict.fromkeys(("aten::embedding_bag", "aten::_embedding_bag"), _embedding_bag),
}  # fmt: skip
