"""Depthwise convolutions (groups == channels): no matrix products, but work of lanes.

torch's own kernels (DepthwiseConv2d.cu), of 16-bit tensors in the contiguous layout:

    forward             a thread per result: it divides to index the result, then adds a product per tap
    gradient of input   a thread per pixel: for each tap, also whether a result at this stride lies there
    gradient of weight  a block per channel and tap. Its warps take images in turn, and 32 results of an image at a
                        time: a short image leaves threads idle, and few blocks leave SMs waiting for memory

Others are cuDNN's (channels last, float32): lane cycles of a multiply-add. A node shows the dtype, not the layout.
"""

from __future__ import annotations

import numpy as np

from gnnperf.analytic.convolution.model import ConvolutionPass, Convolutions
from gnnperf.analytic.kernels.call import Setting
from gnnperf.analytic.memory_bound.streams import US, issue_us

OWN_ITEM_BYTES = 2  # of elements whose kernels are torch's own
WARP = 32
WARPS_PER_BLOCK, BLOCKS_PER_SM = 8, 8  # MAX_BLOCK_SIZE of that file; 2,048 threads of an SM
START = 2.0  # what an image costs a warp at its start, in rounds of 32 results; of 0, 1, 2 and 3 the least error


def depthwise_us(calls: Convolutions, which: ConvolutionPass, item_bytes: float, setting: Setting) -> np.ndarray:
    """Time [calls] us, with the floor of a kernel."""
    device, cycles = setting.device, setting.memory.lane_cycles
    taps = calls.window_height * calls.window_width  # [calls]
    results = calls.images * calls.out_channels * calls.out_height * calls.out_width
    weight = which is ConvolutionPass.GRAD_WEIGHT
    if item_bytes != OWN_ITEM_BYTES:
        return device.launch_floor_us + issue_us(results * taps, cycles["depthwise" + "_weight" * weight], device)
    if weight:
        return device.launch_floor_us + _weight_us(calls, setting)
    if which is ConvolutionPass.FORWARD:
        each = cycles["depthwise_result"] + cycles["depthwise_result_tap"] * taps
        return device.launch_floor_us + issue_us(results * each, 1.0, device)
    pixels = calls.images * calls.in_channels * calls.in_height * calls.in_width
    each = cycles["depthwise_pixel"] + cycles["depthwise_pixel_tap"] * taps
    return device.launch_floor_us + issue_us(pixels * each, 1.0, device)


def _weight_us(calls: Convolutions, setting: Setting) -> np.ndarray:
    """Time [calls] us of the blocks' instructions, and of the rounds in which their warps wait for memory."""
    device = setting.device
    warps = np.minimum(calls.images, WARPS_PER_BLOCK)  # [calls]
    rounds = np.ceil(calls.images / warps) * (np.ceil(calls.out_height * calls.out_width / WARP) + START)
    blocks = calls.out_channels * calls.window_height * calls.window_width
    waits = rounds * np.maximum(blocks / (BLOCKS_PER_SM * device.num_sms), 1.0)
    issue = issue_us(blocks * warps * WARP * rounds, setting.memory.lane_cycles["depthwise_weight_tap"], device)
    return issue + waits * setting.memory.clocks["depthwise_round"] / device.clock_hz * US
