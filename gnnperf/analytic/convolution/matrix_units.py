"""Convolutions on matrix units: products of images as they lie, or implicit ones of images in channels last.

    called                        kernels
    1 x 1 at stride 1             one product per image, as it lies; its rows are pixels of a channel. Those of the
                                  weight's gradient are added up by a kernel of its own
    turned (`num_kernels`), or    an implicit product; its rows are channels of a pixel. Images [N, C, H, W] and
    another window                weights are turned to channels last for it, and its result back
    fewer channels than a vector  lanes, where nothing is turned (cuDNN's implicit_convolve_sgemm)

Implicit products read each pixel from memory once, and again for other taps from the caches. Each of their steps along
k is within one tap: channels are summed in slices of 32, however few there are. Where rows are no whole vectors of 16
bytes, neither tensor copies nor wide loads apply, and libraries have kernels of earlier generations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.analytic.convolution.model import ConvolutionPass, Convolutions, as_products, moved_bytes
from gnnperf.analytic.gemm.model import SUM_BYTES, Products, ProductTime, products
from gnnperf.analytic.kernels.call import Setting
from gnnperf.analytic.memory_bound.streams import issue_us, stream_us, traffic_us

VECTOR_BYTES = 16  # of the widest load of a thread, and what a tensor copy's rows are a multiple of
SLICE = 32  # channels of a step along k
BLOCK = 32  # channels, and pixels, of a block that turns a layout
LANES_TILE = 32  # output channels of the smallest tile on lanes


def matrix_units_us(
    calls: Convolutions, which: ConvolutionPass, turned: np.ndarray, item_bytes: float, setting: Setting,
    product_us: ProductTime,
) -> np.ndarray:  # fmt: skip
    """Time [calls] us, a share `turned` [calls] of it with images turned to channels last."""
    pointwise = (calls.window_height * calls.window_width == 1) & (calls.stride == 1)  # [calls]
    moved_us = stream_us(moved_bytes(calls, item_bytes), setting.device, setting.memory)
    implicit = np.maximum(_implicit_us(calls, which, item_bytes, setting, product_us), moved_us)
    pixels = calls.in_height * calls.in_width
    slower = np.where((pixels > 1) & _no_vectors(pixels, item_bytes), setting.memory.convolution["unaligned"], 1.0)
    if which is ConvolutionPass.GRAD_WEIGHT:
        result, added_us = _by_image(calls, item_bytes, setting)
    else:
        result, added_us = as_products(calls, which, item_bytes), np.zeros(len(pixels))
    as_it_lies = np.maximum(product_us(result) * slower, moved_us) + added_us
    as_it_lies = np.where(pointwise, as_it_lies, implicit)
    few = ~pointwise & (calls.in_channels * item_bytes < VECTOR_BYTES)
    as_it_lies = np.where(few, _lanes_us(calls, setting), as_it_lies)
    return turned * (implicit + _layouts_us(calls, item_bytes, setting)) + (1.0 - turned) * as_it_lies


def _by_image(calls: Convolutions, item_bytes: float, setting: Setting) -> tuple[Products, np.ndarray]:
    """The weight gradient's product of every image, and the time [calls] us of adding them up (reduce_wgrad_nchw)."""
    into, out, pixels = calls.in_channels / calls.groups, calls.out_channels, calls.in_height * calls.in_width
    parts = np.where(pixels > 1, calls.images, 1.0)  # [calls] images of one pixel are the rows of one product
    result = products(out / calls.groups, into, calls.images * pixels / parts, parts * calls.groups, item_bytes)
    added_bytes = np.where(parts > 1, parts * into * out * SUM_BYTES, 0.0)
    return result, traffic_us(added_bytes, 1.0, setting.device, setting.memory)


def _implicit_us(
    calls: Convolutions, which: ConvolutionPass, item_bytes: float, setting: Setting, product_us: ProductTime
) -> np.ndarray:
    """[calls] us of the implicit product."""
    forward, of_input = which is ConvolutionPass.FORWARD, which is ConvolutionPass.GRAD_INPUT
    multiple = SLICE if forward else VECTOR_BYTES / item_bytes  # turned rows are filled up to whole vectors
    into = calls.groups * _whole(calls.in_channels / calls.groups, multiple)  # [calls]
    out = calls.groups * _whole(calls.out_channels / calls.groups, SLICE)
    filled = replace(calls, out_channels=out) if of_input else replace(calls, in_channels=into)
    result = as_products(filled, which, item_bytes)
    patches = result.batch * (result.m * result.k + result.k * result.n + result.m * result.n)  # elements
    once = replace(result, item_bytes=item_bytes * np.minimum(moved_bytes(filled, 1.0) / patches, 1.0))
    slower = setting.memory.convolution
    ragged = _no_vectors(calls.in_channels, item_bytes) | _no_vectors(calls.out_channels, item_bytes)
    return product_us(once) * np.where(ragged, slower["implicit_unaligned"], slower["implicit"])


def _layouts_us(calls: Convolutions, item_bytes: float, setting: Setting) -> np.ndarray:
    """[calls] us of turning image, result and weight, in blocks that few channels or pixels do not fill."""

    def blocks(channels: np.ndarray, pixels: np.ndarray) -> np.ndarray:
        return _whole(channels, BLOCK) * _whole(pixels, BLOCK)

    taps = calls.window_height * calls.window_width  # [calls]
    weight = calls.out_channels * blocks(calls.in_channels / calls.groups, taps)
    images = blocks(calls.in_channels, calls.in_height * calls.in_width)
    elements = calls.images * (images + blocks(calls.out_channels, calls.out_height * calls.out_width))
    issue = issue_us(elements + np.where(taps > 1, weight, 0.0), setting.memory.lane_cycles["layout"], setting.device)
    return np.maximum(issue, traffic_us(moved_bytes(calls, 2 * item_bytes), 1.0, setting.device, setting.memory))


def _lanes_us(calls: Convolutions, setting: Setting) -> np.ndarray:
    """[calls] us of a convolution on lanes."""
    sums = calls.images * calls.out_height * calls.out_width * _whole(calls.out_channels, LANES_TILE)  # [calls]
    adds = sums * calls.in_channels * calls.window_height * calls.window_width
    return setting.device.launch_floor_us + issue_us(adds, setting.memory.lane_cycles["few_channels"], setting.device)


def _whole(values: np.ndarray, multiple: float) -> np.ndarray:
    """Rounded up to multiples."""
    return np.ceil(values / multiple) * multiple


def _no_vectors(row: np.ndarray, item_bytes: float) -> np.ndarray:
    """Whether rows of so many elements are no whole number of vectors."""
    return row * item_bytes % VECTOR_BYTES != 0
