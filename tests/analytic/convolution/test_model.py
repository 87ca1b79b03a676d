"""Convolutions as products: sizes by hand."""

from __future__ import annotations

import pytest
from convolved import convolution, flops_us, free_us, sizes
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.convolution.model import ConvolutionPass, Convolutions, as_products, convolution_us, moved_bytes

FORWARD, GRAD_INPUT, GRAD_WEIGHT = ConvolutionPass


@pytest.mark.parametrize(
    ("call", "which", "expected"),
    [
        (convolution(), FORWARD, (1, 200, 8, 36)),  # 2 x 10 x 10 results, 4 x 3 x 3 taps
        (convolution(), GRAD_INPUT, (1, 200, 4, 72)),
        (convolution(), GRAD_WEIGHT, (1, 8, 36, 200)),
        (convolution(stride=2), FORWARD, (1, 50, 8, 36)),  # (10 + 2 - 3) // 2 + 1 = 5
        (convolution(stride=2), GRAD_INPUT, (1, 200, 4, 18)),
        (convolution(groups=2), FORWARD, (2, 200, 4, 18)),
        (convolution(groups=4, out=4), GRAD_WEIGHT, (4, 1, 9, 200)),  # depthwise
    ],
)
def test_sizes(call: Convolutions, which: ConvolutionPass, expected: tuple[float, ...]) -> None:
    assert sizes(as_products(call, which, 4)) == expected


def test_all_three_passes_do_the_same_arithmetic_where_every_tap_counts() -> None:
    each = [flops_us(as_products(convolution(padding=1), which, 4))[0] for which in ConvolutionPass]
    assert each == pytest.approx([57600.0] * 3)


def test_patches_are_not_moved() -> None:
    assert moved_bytes(convolution(), 4) == pytest.approx([4 * (2 * 4 * 100 + 8 * 4 * 9 + 2 * 8 * 100)])


def test_time_is_that_of_the_products_or_of_the_tensors() -> None:
    assert convolution_us(convolution(), FORWARD, 4, DEVICE, CONSTANTS, flops_us) == pytest.approx([57600.0])
    free = convolution_us(convolution(), FORWARD, 4, DEVICE, CONSTANTS, free_us)
    assert free == pytest.approx([2.0 + 4 * 2688 / 0.5e6])
