"""Convolution as an implicit matrix product (Chetlur et al. 2014, cuDNN), forward and both backwards.

    images N, channels C -> K, window R x S, result P x Q, groups G (one product per group, C/G and K/G channels)

                        m            n            k
    forward             N P Q        K/G          C/G R S
    gradient of input   N H W        C/G          K/G R S / stride^2     (Dumoulin, Visin 2016, chapter 4: the taps
    gradient of weight  K/G          C/G R S      N P Q                   between strides multiply zeros)

The patches are never written: bytes are image, weight and result once each. On plain lanes kernels of the first two sum
all of k in one tile, as long as it may be (deep images of few pixels leave most SMs idle); the third divides k among
tiles. On matrix units, whose convolutions no table has, all may.

Winograd's forms of 3 x 3 windows are `gnnperf.analytic.convolution.winograd`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gnnperf.analytic.gemm.model import SPLITS, Products, ProductTime, Splits, products
from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import stream_us
from gnnperf.hardware import DeviceSpec


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
    memory: MemoryConstants,
    product_us: ProductTime,
    splits: Splits = SPLITS,
) -> np.ndarray:
    """Time [calls] us: that of the products, or of moving the tensors where that is longer (depthwise, 1 x 1).

    Args:
        calls: sizes.
        which: forward or one of the gradients.
        item_bytes: of an element.
        device: bandwidth and floor.
        memory: sustained shares.
        product_us: the model of matrix products, e.g. gemm.gemm_us for a device and dtype. Its bytes are those of
            patches, which a convolution reads from the cache: an upper bound of what memory costs.
        splits: into how many parts kernels may divide k.
    """
    moved_us = stream_us(moved_bytes(calls, item_bytes), device, memory)  # [calls]
    return np.maximum(product_us(as_products(calls, which, item_bytes), splits), moved_us)
