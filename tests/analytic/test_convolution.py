"""Convolutions as products: sizes by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.convolution import (
    ConvolutionPass,
    Convolutions,
    as_products,
    convolution_us,
    lanes_convolution_us,
    moved_bytes,
    result_edge,
    winograd_products,
)
from gnnperf.analytic.gemm_sizes import Products

FORWARD, GRAD_INPUT, GRAD_WEIGHT = ConvolutionPass


def convolution(images: float = 2, channels: float = 4, out: float = 8, size: float = 10, window: float = 3,
                stride: float = 1, padding: float = 1, groups: float = 1) -> Convolutions:  # fmt: skip
    edge = float(result_edge(*(np.array([float(v)]) for v in (size, window, stride, padding)))[0])
    sizes = (images, channels, out, size, size, window, window, edge, edge, stride, groups)
    return Convolutions(*(np.array([float(v)]) for v in sizes))


def sizes(found: Products) -> tuple[float, ...]:
    return tuple(float(v[0]) for v in (found.batch, found.m, found.n, found.k))


def flops_us(found: Products) -> np.ndarray:
    return found.batch * found.m * found.n * found.k  # as if a multiply-add took a microsecond


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
    free = convolution_us(convolution(), FORWARD, 4, DEVICE, CONSTANTS, lambda p: 0.0 * p.m)
    assert free == pytest.approx([2.0 + 4 * 2688 / 0.5e6])


def test_minimal_filtering_multiplies_16_times_for_4_results_and_only_where_it_applies() -> None:
    assert sizes(winograd_products(convolution(), FORWARD, 4)) == (1, 16 * 2 * 25, 8, 4)
    assert lanes_convolution_us(convolution(), FORWARD, 4, DEVICE, CONSTANTS, flops_us) == pytest.approx([25600.0])
    strided = convolution(stride=2)
    direct = convolution_us(strided, FORWARD, 4, DEVICE, CONSTANTS, flops_us)
    assert lanes_convolution_us(strided, FORWARD, 4, DEVICE, CONSTANTS, flops_us) == direct


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from(list(ConvolutionPass)))
def test_more_images_are_never_faster(one: int, other: int, which: ConvolutionPass) -> None:
    few, many = (
        convolution_us(convolution(images=n), which, 4, DEVICE, CONSTANTS, flops_us)[0] for n in sorted((one, other))
    )
    assert few <= many


def test_the_weight_gradient_has_a_minimal_form_as_well() -> None:
    # 2 images of 10 x 10 results are 2 x 5 x 5 tiles of 2 x 2; 16 places, 8 channels out, 4 in
    assert sizes(winograd_products(convolution(), GRAD_WEIGHT, 4)) == (1, 16 * 8, 4, 2 * 25)
    direct, filtered = (flops_us(form(convolution(), GRAD_WEIGHT, 4))[0] for form in (as_products, winograd_products))
    assert filtered / direct == pytest.approx(16 / 36)
