"""Convolution as an implicit matrix product (Chetlur et al. 2014, cuDNN), forward and both backwards.

    images N, channels C -> K, window R x S, result P x Q, groups G (one product per group, C/G and K/G channels)

                        m            n            k
    forward             N P Q        K/G          C/G R S
    gradient of input   N H W        C/G          K/G R S / stride^2     (Dumoulin, Visin 2016, chapter 4: the taps
    gradient of weight  K/G          C/G R S      N P Q                   between strides multiply zeros)

The patches are never written: bytes are image, weight and result once each.

3 x 3 windows at stride 1 on plain lanes also come as Winograd's minimal filtering F(2 x 2, 3 x 3): 16 multiplications
for 4 results instead of 36 (Lavin, Gray 2016, section 4.1), as products of [16 tiles, C] x [C, K]; the weight's
gradient as F(3 x 3, 2 x 2), 16 multiplications for 9 sums over 4 results (section 3), as [16 K, tiles] x [tiles, C].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gnnperf.analytic.bandwidth_bound import stream_us
from gnnperf.analytic.gemm_sizes import Products, products
from gnnperf.analytic.memory_constants import MemoryConstants
from gnnperf.hardware.spec import DeviceSpec

WINOGRAD_RESULTS, WINOGRAD_WINDOW = 2, 3


class ConvolutionPass(StrEnum):
    """Which of the three products of a training step."""

    FORWARD = "forward"
    GRAD_INPUT = "grad_input"
    GRAD_WEIGHT = "grad_weight"


@dataclass(frozen=True)
class Convolutions:
    """Two-dimensional convolutions; each field [calls].

    Attributes:
        images: N.
        in_channels: C.
        out_channels: K.
        in_height: H.
        in_width: W.
        window_height: R.
        window_width: S.
        out_height: P.
        out_width: Q.
        stride: of both edges.
        groups: G.
    """

    images: np.ndarray
    in_channels: np.ndarray
    out_channels: np.ndarray
    in_height: np.ndarray
    in_width: np.ndarray
    window_height: np.ndarray
    window_width: np.ndarray
    out_height: np.ndarray
    out_width: np.ndarray
    stride: np.ndarray
    groups: np.ndarray


def result_edge(edge: np.ndarray, window: np.ndarray, stride: np.ndarray, padding: np.ndarray) -> np.ndarray:
    """P or Q [calls] = floor((H + 2 padding - R) / stride) + 1 (torch.nn.Conv2d)."""
    return np.floor((edge + 2 * padding - window) / stride) + 1


def as_products(calls: Convolutions, which: ConvolutionPass, item_bytes: int) -> Products:
    """The products that a convolution is [calls]; see the table in the module."""
    taps = calls.window_height * calls.window_width  # [calls]
    into, out = calls.in_channels / calls.groups, calls.out_channels / calls.groups
    results = calls.images * calls.out_height * calls.out_width
    if which is ConvolutionPass.FORWARD:
        return products(results, out, into * taps, calls.groups, item_bytes)
    if which is ConvolutionPass.GRAD_INPUT:
        pixels = calls.images * calls.in_height * calls.in_width
        return products(pixels, into, out * taps / calls.stride**2, calls.groups, item_bytes)
    return products(out, into * taps, results, calls.groups, item_bytes)


def winograd_applies(calls: Convolutions) -> np.ndarray:
    """[calls] bool: 3 x 3 windows at stride 1 in one group."""
    square = (calls.window_height == WINOGRAD_WINDOW) & (calls.window_width == WINOGRAD_WINDOW)
    return square & (calls.stride == 1) & (calls.groups == 1)


def winograd_products(calls: Convolutions, which: ConvolutionPass, item_bytes: int) -> Products:
    """The products [calls] of minimal filtering, transforms fused into them: one for every place of a 4 x 4 tile."""
    forward = which is ConvolutionPass.FORWARD
    of_input = which is ConvolutionPass.GRAD_INPUT
    height, width = (calls.in_height, calls.in_width) if of_input else (calls.out_height, calls.out_width)
    tiles = calls.images * np.ceil(height / WINOGRAD_RESULTS) * np.ceil(width / WINOGRAD_RESULTS)  # [calls]
    places = (WINOGRAD_RESULTS + WINOGRAD_WINDOW - 1) ** 2
    into, out = calls.in_channels, calls.out_channels
    if which is ConvolutionPass.GRAD_WEIGHT:
        return products(out * places, into, tiles, 1, item_bytes)
    return products(tiles * places, out if forward else into, into if forward else out, 1, item_bytes)


def moved_bytes(calls: Convolutions, item_bytes: int) -> np.ndarray:
    """Image, weight and result once each [calls] bytes: two are read and one is written, in every pass."""
    image = calls.images * calls.in_channels * calls.in_height * calls.in_width
    weight = calls.out_channels * calls.in_channels / calls.groups * calls.window_height * calls.window_width
    result = calls.images * calls.out_channels * calls.out_height * calls.out_width
    return (image + weight + result) * float(item_bytes)


def convolution_us(
    calls: Convolutions,
    which: ConvolutionPass,
    item_bytes: int,
    device: DeviceSpec,
    constants: MemoryConstants,
    product_us: Callable[[Products], np.ndarray],
) -> np.ndarray:
    """Time [calls] us: that of the products, or of moving the tensors where that is longer (depthwise, 1 x 1).

    Args:
        calls: sizes.
        which: forward or one of the gradients.
        item_bytes: of an element.
        device: bandwidth and floor.
        constants: sustained shares.
        product_us: the model of matrix products, e.g. gemm.gemm_us for a device and dtype. Its bytes are those of
            patches, which a convolution reads from the cache: an upper bound of what memory costs.
    """
    moved_us = stream_us(moved_bytes(calls, item_bytes), device, constants)  # [calls]
    return np.maximum(product_us(as_products(calls, which, item_bytes)), moved_us)


def lanes_convolution_us(
    calls: Convolutions,
    which: ConvolutionPass,
    item_bytes: int,
    device: DeviceSpec,
    constants: MemoryConstants,
    product_us: Callable[[Products], np.ndarray],
) -> np.ndarray:
    """Time [calls] us without matrix units: Winograd's form where it applies and is faster, else `convolution_us`."""
    direct = convolution_us(calls, which, item_bytes, device, constants, product_us)  # [calls]
    moved_us = stream_us(moved_bytes(calls, item_bytes), device, constants)  # [calls]
    filtered = np.maximum(product_us(winograd_products(calls, which, item_bytes)), moved_us)  # [calls]
    return np.where(winograd_applies(calls), np.minimum(direct, filtered), direct)
