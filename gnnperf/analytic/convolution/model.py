"""Convolution as an implicit matrix product (Chetlur et al. 2014, cuDNN), forward and both backwards.

    images N, channels C -> K, window R x S, result P x Q, groups G (one product per group, C/G and K/G channels)

                        m            n            k
    forward             N P Q        K/G          C/G R S
    gradient of input   N H W        C/G          K/G R S / stride^2     (Dumoulin, Visin 2016, chapter 4: the taps
    gradient of weight  K/G          C/G R S      N P Q                   between strides multiply zeros)

The patches are never written: bytes are image, weight and result once each. On plain lanes kernels of the first two sum
all of k in one tile, as long as it may be (deep images of few pixels leave most SMs idle); the third divides k among
tiles. On matrix units all may (`gnnperf.analytic.convolution.kernels`).

Without matrix units 3 x 3 windows at stride 1 in one group have Winograd's minimal filtering (Lavin, Gray 2016), too:

                multiplications                   products                     transforms
    fused       F(2 x 2, 3 x 3): 16 for 4 sums    [16 tiles, C] x [C, K]       inside, but for the weight's
    unfused     F(4 x 4, 3 x 3): 36 for 16 sums   36 of [tiles, C] x [C, K]    kernels of their own, through memory

A fused kernel works on blocks of 8 x 8 results: an image of 9 x 9 costs four of them. The weight's gradient is
F(3 x 3, 4 x 4) (section 3), summed over tiles, and unfused: cuDNN has no fused kernel for it. The shares that sizes do
not give are fitted (`ConvolutionConstants`).
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gnnperf.analytic.constants_file import shipped
from gnnperf.analytic.gemm.model import SPLITS, WHOLE, Products, ProductTime, products
from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import US, stream_us, sustained_bytes_per_s
from gnnperf.core import AboveZero
from gnnperf.hardware import DeviceSpec


class ConvolutionPass(StrEnum):
    """Which of the three products of a training step."""

    FORWARD = "forward"
    GRAD_INPUT = "grad_input"
    GRAD_WEIGHT = "grad_weight"


@dataclass(frozen=True)
class Convolutions:
    """Two-dimensional convolutions; each field [calls]."""

    images: np.ndarray  # N
    in_channels: np.ndarray  # C
    out_channels: np.ndarray  # K
    in_height: np.ndarray  # H
    in_width: np.ndarray  # W
    window_height: np.ndarray  # R
    window_width: np.ndarray  # S
    out_height: np.ndarray  # P
    out_width: np.ndarray  # Q
    stride: np.ndarray  # of both edges
    groups: np.ndarray  # G


def as_products(calls: Convolutions, which: ConvolutionPass, item_bytes: float) -> Products:
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


def moved_bytes(calls: Convolutions, item_bytes: float) -> np.ndarray:
    """Image, weight and result once each [calls] bytes: two are read and one is written, in every pass."""
    image = calls.images * calls.in_channels * calls.in_height * calls.in_width
    weight = calls.out_channels * calls.in_channels / calls.groups * calls.window_height * calls.window_width
    result = calls.images * calls.out_channels * calls.out_height * calls.out_width
    return (image + weight + result) * float(item_bytes)


CONVOLUTION_FILE = "convolution.yaml"


@dataclass(frozen=True)
class ConvolutionConstants:
    """Constants of Winograd's forms, and of how the rows that they were fitted on were measured."""

    fused_factor: AboveZero  # time of the products inside the fused kernel over that of such products only
    weight_factor: AboveZero  # time of the fused form's transform of the weight over that of streaming it in and out
    # time of the batch of products between separate transforms over that of such a batch by itself
    unfused_factor: AboveZero
    transform_factor: AboveZero  # time of these transforms over that of streaming what they read and write
    # host time of a first call between two events, all before the kernel starts, on the typical host
    call_us: AboveZero
    growth_us: AboveZero  # by which every size that was called before lengthens it
    provenance: str = ""  # where the numbers come from


default_convolution_constants = shipped(CONVOLUTION_FILE, ConvolutionConstants)


WINOGRAD_WINDOW = 3
FUSED_RESULTS, UNFUSED_RESULTS = 2, 4  # edge of a tile
FUSED_BLOCK = 8  # results along an edge that one block of the fused kernel makes


def fused_products(calls: Convolutions, which: ConvolutionPass, item_bytes: float) -> Products:
    """The products [calls] of minimal filtering in one kernel (no weight gradient): a place of a 4 x 4 tile each.

    Memory gives the image, of which a tile has 4 pixels of its own, and the kernel makes 16 places of them.
    """
    places = _places(FUSED_RESULTS)
    tiles = _blocks(calls, which, FUSED_BLOCK) * (FUSED_BLOCK / FUSED_RESULTS) ** 2  # [calls]
    into, out = calls.in_channels, calls.out_channels
    forward = which is ConvolutionPass.FORWARD
    read_bytes = item_bytes * FUSED_RESULTS**2 / places
    return products(tiles * places, out if forward else into, into if forward else out, 1, read_bytes)


def unfused_products(calls: Convolutions, which: ConvolutionPass, item_bytes: float) -> Products:
    """The batch of products [calls] between separate transforms: one for every place of a 6 x 6 tile."""
    tiles, places = _blocks(calls, which, UNFUSED_RESULTS), _places(UNFUSED_RESULTS)  # [calls]
    into, out = calls.in_channels, calls.out_channels
    if which is ConvolutionPass.GRAD_WEIGHT:
        return products(out, into, tiles, places, item_bytes)
    forward = which is ConvolutionPass.FORWARD
    return products(tiles, out if forward else into, into if forward else out, places, item_bytes)


def weight_bytes(calls: Convolutions, results: int, item_bytes: float) -> np.ndarray:
    """What transforming the weight (or its gradient back) reads and writes [calls] bytes."""
    filters = calls.in_channels * calls.out_channels  # [calls]
    return filters * (WINOGRAD_WINDOW**2 + _places(results)) * float(item_bytes)


def image_bytes(calls: Convolutions, which: ConvolutionPass, item_bytes: float) -> np.ndarray:
    """What the transforms of image and result read and write [calls] bytes: places on one side, pixels on the other."""
    elements = _blocks(calls, which, UNFUSED_RESULTS) * (_places(UNFUSED_RESULTS) + UNFUSED_RESULTS**2)  # [calls]
    return elements * (calls.in_channels + calls.out_channels) * float(item_bytes)


def _blocks(calls: Convolutions, which: ConvolutionPass, edge: int) -> np.ndarray:
    """[calls] squares of `edge` results that cover what is written; of the weight's gradient, what is summed over."""
    of_input = which is ConvolutionPass.GRAD_INPUT
    height, width = (calls.in_height, calls.in_width) if of_input else (calls.out_height, calls.out_width)
    return calls.images * np.ceil(height / edge) * np.ceil(width / edge)


def _places(results: int) -> int:
    return (results + WINOGRAD_WINDOW - 1) ** 2


@dataclass(frozen=True)
class Algorithms:
    """What each way to convolve on lanes takes, before constants: [calls] us each."""

    direct: np.ndarray  # the products, or moving the tensors where that is longer (depthwise, 1 x 1)
    moved: np.ndarray  # image, weight and result streamed once: no algorithm takes less
    floor_us: float  # of the kernel with products; factors are of what is above it
    fused_products: np.ndarray  # as such products only take above the floor; infinite for the weight's gradient
    fused_weight: np.ndarray  # the weight's transform, streamed
    unfused_products: np.ndarray  # as such a batch by itself takes above the floor
    transforms: np.ndarray  # what the unfused form's transforms read and write, streamed
    filtered: np.ndarray  # bool, whether Winograd's forms apply

    def fastest_us(self, constants: ConvolutionConstants) -> np.ndarray:
        """Time [calls] us of the fastest one that applies."""
        fused = constants.fused_factor * self.fused_products + constants.weight_factor * self.fused_weight  # [calls]
        unfused = constants.unfused_factor * self.unfused_products + constants.transform_factor * self.transforms
        winograd = np.maximum(self.floor_us + np.minimum(fused, unfused), self.moved)  # [calls]
        return np.where(self.filtered, np.minimum(self.direct, winograd), self.direct)


def algorithms(
    calls: Convolutions, which: ConvolutionPass, item_bytes: float, device: DeviceSpec, memory: MemoryConstants,
    product_us: ProductTime,
) -> Algorithms:  # fmt: skip
    """Every way to convolve without matrix units."""
    per_byte_us = US / sustained_bytes_per_s(device, memory)
    transformed = image_bytes(calls, which, item_bytes) + weight_bytes(calls, UNFUSED_RESULTS, item_bytes)  # [calls]
    fused, splits = product_us(fused_products(calls, which, item_bytes)), WHOLE  # [calls]
    if which is ConvolutionPass.GRAD_WEIGHT:
        fused, splits = np.full(len(calls.images), np.inf), SPLITS  # there is no such kernel
    square = (calls.window_height == WINOGRAD_WINDOW) & (calls.window_width == WINOGRAD_WINDOW)
    moved_us = stream_us(moved_bytes(calls, item_bytes), device, memory)  # [calls]
    return Algorithms(
        direct=np.maximum(product_us(as_products(calls, which, item_bytes), splits), moved_us),
        moved=moved_us,
        floor_us=device.launch_floor_us,
        fused_products=fused - device.launch_floor_us,
        fused_weight=per_byte_us * weight_bytes(calls, FUSED_RESULTS, item_bytes),
        unfused_products=product_us(unfused_products(calls, which, item_bytes)) - device.launch_floor_us,
        transforms=per_byte_us * transformed,
        filtered=square & (calls.stride == 1) & (calls.groups == 1),
    )
