"""Kernels of convolutions that are no plain products, on a device of round numbers: times by hand."""

from __future__ import annotations

import numpy as np
import pytest
from convolved import convolution, flops_us, sizes
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.convolution.depthwise import depthwise_us
from gnnperf.analytic.convolution.matrix_units import matrix_units_us
from gnnperf.analytic.convolution.model import ConvolutionPass, Convolutions, default_convolution_constants
from gnnperf.analytic.gemm.constants import default_gemm_constants
from gnnperf.analytic.gemm.model import SPLITS, Products, Splits
from gnnperf.analytic.kernels.call import Setting

FORWARD, GRAD_INPUT, GRAD_WEIGHT = ConvolutionPass
ROUND = Setting(DEVICE, CONSTANTS, default_gemm_constants(), default_convolution_constants())
TURNED, AS_IT_LIES = np.ones(1), np.zeros(1)
POINTWISE = {"channels": 8, "window": 1, "padding": 0}


@pytest.mark.parametrize(
    ("which", "item_bytes", "expected"),
    [
        (FORWARD, 2, 800 * (200 + 20 * 9) / 1e6),  # 2 x 4 x 10 x 10 results of 9 taps
        (GRAD_INPUT, 2, 800 * (500 + 10 * 9) / 1e6),
        # 4 x 9 blocks of 2 warps, an image each: 4 rounds of 32 results and 2 to start
        (GRAD_WEIGHT, 2, 36 * 2 * 32 * 6 * 40 / 1e6 + 6 * 200 / 1e3),
        (FORWARD, 4, 7200 * 10 / 1e6),  # cuDNN's: a cost per multiply-add
        (GRAD_WEIGHT, 4, 7200 * 100 / 1e6),
    ],
)
def test_depthwise_convolutions_issue_for_results_pixels_and_rounds(
    which: ConvolutionPass, item_bytes: float, expected: float
) -> None:
    depthwise = convolution(out=4, groups=4)
    assert depthwise_us(depthwise, which, item_bytes, ROUND) == pytest.approx([DEVICE.launch_floor_us + expected])


def test_more_blocks_than_sms_hold_wait_in_turn() -> None:
    few, many = (depthwise_us(convolution(channels=c, out=c, groups=c, window=1), GRAD_WEIGHT, 2, ROUND)[0] - 2.0
                 for c in (80, 160))  # fmt: skip
    assert many == pytest.approx(2 * few)  # 8 blocks on each of 10 SMs


def test_turning_three_channels_costs_as_much_as_thirty_two() -> None:
    # per image 32 channels x 128 pixels of image and of result; 8 filters of 32 channels x 32 taps
    blocks = 2 * 2 * 32 * 128 + 8 * 32 * 32
    few = matrix_units_us(convolution(channels=3), FORWARD, TURNED, 2, ROUND, flops_us)
    assert few == pytest.approx([2.0 * 200 * 8 * 32 * 9 + blocks * 50 / 1e6])  # unaligned rows: twice as long
    full = matrix_units_us(convolution(channels=32), FORWARD, TURNED, 2, ROUND, flops_us)
    assert full == pytest.approx([1.5 * 200 * 8 * 32 * 9 + blocks * 50 / 1e6])


def test_few_channels_as_they_lie_are_convolved_on_lanes() -> None:
    # 2 x 10 x 10 results of 32 output channels, which the tile has, 4 x 9 products each
    lanes = matrix_units_us(convolution(), FORWARD, AS_IT_LIES, 2, ROUND, flops_us)
    assert lanes == pytest.approx([2.0 + 200 * 32 * 36 * 5 / 1e6])


def test_implicit_products_read_pixels_once() -> None:
    seen: list[Products] = []

    def values(result: Products, splits: Splits = SPLITS) -> np.ndarray:
        seen.append(result)
        return flops_us(result)

    matrix_units_us(convolution(channels=32, out=32), FORWARD, TURNED, 2, ROUND, values)
    tensors, patches = 2 * 32 * 100 + 32 * 32 * 9 + 2 * 32 * 100, 200 * 288 + 288 * 32 + 200 * 32
    assert sizes(seen[0]) == (1, 200, 32, 288)
    assert seen[0].item_bytes == pytest.approx([2 * tensors / patches])


@pytest.mark.parametrize(
    ("call", "which", "expected"),
    [
        (convolution(**POINTWISE, size=8), FORWARD, 128 * 8 * 8),  # rows of 64 pixels are 8 vectors
        (convolution(**POINTWISE, size=10), FORWARD, 3.0 * 200 * 8 * 8),  # 100 pixels are 12.5
        (convolution(**POINTWISE, size=8), GRAD_WEIGHT, 2 * 8 * 8 * 64 + 2 * 8 * 8 * 4 / 0.5e6),  # parts are added up
        (convolution(**POINTWISE, size=1), GRAD_WEIGHT, 8 * 8 * 2),  # images of one pixel are rows
    ],
)
def test_windows_of_one_pixel_are_products_of_images(
    call: Convolutions, which: ConvolutionPass, expected: float
) -> None:
    assert matrix_units_us(call, which, AS_IT_LIES, 2, ROUND, flops_us) == pytest.approx([expected])
