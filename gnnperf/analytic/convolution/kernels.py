"""Kernels of convolutions that are no plain products: on matrix units, and depthwise ones on lanes.

    on matrix units               kernels
    1 x 1 at stride 1             a product per image, whose rows are pixels; those of a weight's gradient are added up
      channels last               one product for all images
    another window, or turned     an implicit product, whose rows are channels; tensors are turned for it and back
    fewer channels than a vector  lanes, where nothing is turned (cuDNN's implicit_convolve_sgemm)

Implicit products read a pixel from memory once, and for other taps from the caches. A step along k is within one tap:
few channels count as 32. Where rows are no whole vectors of 16 bytes, libraries have kernels of earlier generations.

Depthwise (groups == channels): torch's own kernels (DepthwiseConv2d.cu, 16 bits, contiguous) have a thread per result,
or per pixel of the input's gradient. The weight's gradient has a block per channel and tap, whose warps take images in
turn and 32 results at a time: short images leave threads idle, and few blocks leave SMs waiting for memory. Others, in
float32 and channels last, are cuDNN's: lane cycles of a multiply-add, more for a contiguous weight's gradient. The op's
name shows which, or else its dtype and, backward, a kernel more than torch's two.
"""

from dataclasses import replace

import numpy as np

from gnnperf.analytic.convolution.model import ConvolutionPass, Convolutions, as_products, moved_bytes
from gnnperf.analytic.gemm.model import SUM_BYTES, ProductTime, products
from gnnperf.analytic.kernels.call import Setting, rounded_up
from gnnperf.analytic.memory_bound.streams import US, issue_us, stream_us, traffic_us

VECTOR_BYTES = 16  # of the widest load of a thread; rows that a tensor copy reads are multiples of it
BLOCK = 32  # channels of a step along k, of the smallest tile on lanes, and, with as many pixels, of a turned block
OWN_ITEM_BYTES, WARP = 2, 32
WARPS_PER_BLOCK, BLOCKS_PER_SM = 8, 8  # MAX_BLOCK_SIZE of DepthwiseConv2d.cu; 2,048 threads of an SM
START = 2.0  # what an image costs a warp at its start, in rounds of 32 results; of 0, 1, 2 and 3 the least error


def matrix_units_us(
    calls: Convolutions, which: ConvolutionPass, turned: np.ndarray, item_bytes: float, setting: Setting,
    product_us: ProductTime, rows_are_pixels: np.ndarray | bool = False,
) -> np.ndarray:  # fmt: skip
    """Time [calls] us, a share `turned` [calls] of it turned to channels last; `rows_are_pixels` [calls]: they are."""
    device, memory, taps = setting.device, setting.memory, calls.window_height * calls.window_width  # [calls]
    vector, pixels = VECTOR_BYTES / item_bytes, calls.in_height * calls.in_width
    moved_us = stream_us(moved_bytes(calls, item_bytes), device, memory)
    implicit = np.maximum(_implicit_us(calls, which, item_bytes, setting, product_us), moved_us)
    result, added_bytes = as_products(calls, which, item_bytes), 0.0 * pixels
    by_images = (pixels > 1) & ~np.asarray(rows_are_pixels)  # [calls]
    if which is ConvolutionPass.GRAD_WEIGHT:  # images of one pixel are the rows of one product
        parts = np.where(by_images, calls.images, 1.0)
        result = products(result.m, result.n, result.k / parts, result.batch * parts, item_bytes)
        added_bytes = np.where(parts > 1, SUM_BYTES * result.batch * result.m * result.n, 0.0)
    slower = np.where(by_images & (pixels % vector > 0), memory.convolution["unaligned"], 1.0)
    by_image = np.maximum(product_us(result) * slower, moved_us) + traffic_us(added_bytes, 1.0, device, memory)
    results = calls.images * calls.out_height * calls.out_width  # [calls]
    adds = results * calls.in_channels * taps * rounded_up(calls.out_channels, BLOCK)
    lanes = device.launch_floor_us + issue_us(adds, memory.lane_cycles["few_channels"], device)
    unturned = np.where(calls.in_channels < vector, lanes, implicit)
    unturned = np.where((taps == 1) & (calls.stride == 1), by_image, unturned)
    return turned * (implicit + _layouts_us(calls, item_bytes, setting)) + (1.0 - turned) * unturned


def _implicit_us(
    calls: Convolutions, which: ConvolutionPass, item_bytes: float, setting: Setting, product_us: ProductTime
) -> np.ndarray:
    """[calls] us of the implicit product, of rows filled up: to steps, or to vectors for the weight's gradient."""
    vector, name = VECTOR_BYTES / item_bytes, "out" if which is ConvolutionPass.GRAD_INPUT else "in"
    # Groups of few channels share a step: entries of the others are zeros.
    calls = replace(calls, groups=np.minimum(calls.groups, np.ceil(getattr(calls, f"{name}_channels") / BLOCK)))
    channels = getattr(calls, f"{name}_channels") / calls.groups  # [calls] that a row has
    whole = rounded_up(channels, vector if which is ConvolutionPass.GRAD_WEIGHT else BLOCK)
    filled = replace(calls, **{f"{name}_channels": calls.groups * whole})
    result = as_products(filled, which, item_bytes)
    patches = result.batch * (result.m * result.k + result.k * result.n + result.m * result.n)  # elements
    once = replace(result, item_bytes=item_bytes * np.minimum(moved_bytes(filled, 1.0) / patches, 1.0))
    unaligned = (calls.in_channels % vector > 0) | (calls.out_channels % vector > 0)
    slower = setting.memory.convolution
    return product_us(once) * np.where(unaligned, slower["implicit_unaligned"], slower["implicit"])


def _layouts_us(calls: Convolutions, item_bytes: float, setting: Setting) -> np.ndarray:
    """[calls] us of turning image, result and weight, in blocks that few channels or pixels do not fill."""
    taps = calls.window_height * calls.window_width  # [calls]
    images = rounded_up(calls.in_channels, BLOCK) * rounded_up(calls.in_height * calls.in_width, BLOCK)
    results = rounded_up(calls.out_channels, BLOCK) * rounded_up(calls.out_height * calls.out_width, BLOCK)
    rows = calls.out_channels * rounded_up(calls.in_channels / calls.groups, BLOCK)
    weight = np.where(taps > 1, rows * rounded_up(taps, BLOCK), 0.0)
    elements = calls.images * (images + results) + weight
    issue = issue_us(elements, setting.memory.lane_cycles["layout"], setting.device)
    return np.maximum(issue, traffic_us(moved_bytes(calls, 2 * item_bytes), 1.0, setting.device, setting.memory))


def depthwise_us(
    calls: Convolutions, which: ConvolutionPass, own: np.ndarray, item_bytes: float, setting: Setting
) -> np.ndarray:
    """Time [calls] us, with the floor of a kernel: of torch's own where `own` [calls] is true, else of cuDNN's."""
    device, cycles = setting.device, setting.memory.lane_cycles
    taps = calls.window_height * calls.window_width  # [calls]
    results = calls.images * calls.out_channels * calls.out_height * calls.out_width
    pixels = calls.images * calls.in_channels * calls.in_height * calls.in_width
    contiguous = which is ConvolutionPass.GRAD_WEIGHT and item_bytes != OWN_ITEM_BYTES
    others = results * taps * cycles["depthwise" + "_weight" * contiguous]  # lane cycles
    waits_us = np.zeros(len(taps))
    if which is not ConvolutionPass.GRAD_WEIGHT:
        elements, name = (results, "result") if which is ConvolutionPass.FORWARD else (pixels, "pixel")
        work = elements * (cycles[f"depthwise_{name}"] + cycles[f"depthwise_{name}_tap"] * taps)
    else:
        warps, blocks = np.minimum(calls.images, WARPS_PER_BLOCK), calls.out_channels * taps  # [calls]
        rounds = np.ceil(calls.images / warps) * (np.ceil(calls.out_height * calls.out_width / WARP) + START)
        work = blocks * warps * WARP * rounds * cycles["depthwise_weight_tap"]
        in_turn = np.maximum(blocks / (BLOCKS_PER_SM * device.num_sms), 1.0)
        waits_us = rounds * in_turn * setting.memory.clocks["depthwise_round"] / device.clock_hz * US
    return device.launch_floor_us + np.where(own, issue_us(work, 1.0, device) + waits_us, issue_us(others, 1.0, device))
