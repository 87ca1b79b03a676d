"""Convolutions as products: sizes by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from convolved import convolution, flops_us, free_us, sizes
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.convolution.model import (
    ConvolutionConstants,
    ConvolutionPass,
    Convolutions,
    algorithms,
    as_products,
    convolution_us,
    fused_products,
    image_bytes,
    moved_bytes,
    unfused_products,
    weight_bytes,
)
from gnnperf.analytic.gemm.model import SPLITS, WHOLE, Products, Splits

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


FORWARD, GRAD_INPUT, GRAD_WEIGHT = ConvolutionPass


@pytest.mark.parametrize(("which", "expected"), [(FORWARD, WHOLE), (GRAD_INPUT, WHOLE), (GRAD_WEIGHT, SPLITS)])
def test_only_the_weight_gradient_divides_what_it_sums(which: ConvolutionPass, expected: Splits) -> None:
    seen: list[Splits] = []

    def values(result: Products, splits: Splits = SPLITS) -> np.ndarray:
        seen.append(splits)
        return flops_us(result)

    algorithms(convolution(), which, 4, DEVICE, CONSTANTS, values)
    assert seen == [SPLITS, expected, SPLITS]  # fused, direct, unfused


def test_fused_filtering_multiplies_16_times_for_4_results_in_blocks_of_8_by_8() -> None:
    # 10 x 10 results: 2 x 2 blocks of 4 x 4 tiles, for 2 images
    assert sizes(fused_products(convolution(), FORWARD, 4)) == (1, 16 * 2 * 4 * 16, 8, 4)
    assert sizes(fused_products(convolution(), GRAD_INPUT, 4)) == (1, 16 * 2 * 4 * 16, 4, 8)
    assert fused_products(convolution(), FORWARD, 4).item_bytes == 1.0  # 4 pixels become 16 places
    whole, one_more = (fused_products(convolution(size=edge), FORWARD, 4).m[0] for edge in (8, 9))
    assert one_more == 4 * whole


def test_unfused_filtering_multiplies_36_times_for_16_results() -> None:
    # 10 x 10 results: 3 x 3 tiles of 4 x 4, for 2 images
    assert sizes(unfused_products(convolution(), FORWARD, 4)) == (36, 2 * 9, 8, 4)
    assert sizes(unfused_products(convolution(), GRAD_WEIGHT, 4)) == (36, 8, 4, 2 * 9)
    assert weight_bytes(convolution(), 4, 4) == pytest.approx([4 * 8 * (9 + 36) * 4])
    assert image_bytes(convolution(), FORWARD, 4) == pytest.approx([2 * 9 * (36 + 16) * (4 + 8) * 4])


ALIKE = ConvolutionConstants(1.0, 1.0, 1.0, 1.0, 50.0, 0.1)
SLOW, FREE = 9.0, 1e-6


@pytest.mark.parametrize(
    ("fused", "unfused", "which", "expected"),
    [
        (1.0, 1.0, FORWARD, 36 * 18 * 8 * 4 + (18 * 52 * 12 + 45 * 32) * 4 / 0.5e6),  # 20,736 and the transforms
        (0.5, SLOW, FORWARD, 65536 / 2 + 25 * 32 * 4 / 0.5e6),
        (SLOW, SLOW, FORWARD, 57600.0),  # direct
        (FREE, SLOW, GRAD_WEIGHT, 57600.0),  # no fused kernel
    ],
)
def test_the_fastest_algorithm_is_taken(fused: float, unfused: float, which: ConvolutionPass, expected: float) -> None:
    constants = replace(ALIKE, fused_factor=fused, unfused_factor=unfused)
    result = algorithms(convolution(), which, 4, DEVICE, CONSTANTS, flops_us).fastest_us(constants)
    assert result == pytest.approx([expected])


@pytest.mark.parametrize("call", [convolution(stride=2), convolution(window=5, padding=2), convolution(groups=2)])
def test_other_windows_strides_and_groups_are_convolved_directly(call: Convolutions) -> None:
    direct = convolution_us(call, FORWARD, 4, DEVICE, CONSTANTS, flops_us)
    constants = replace(ALIKE, fused_factor=FREE, unfused_factor=FREE)
    assert algorithms(call, FORWARD, 4, DEVICE, CONSTANTS, flops_us).fastest_us(constants) == direct


def test_nothing_is_faster_than_moving_the_tensors() -> None:
    constants = ConvolutionConstants(FREE, FREE, FREE, FREE, FREE, FREE)
    result = algorithms(convolution(), FORWARD, 4, DEVICE, CONSTANTS, flops_us).fastest_us(constants)
    assert result == pytest.approx([2.0 + 4 * 2688 / 0.5e6])


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from(list(ConvolutionPass)))
def test_more_images_are_never_faster(one: int, other: int, which: ConvolutionPass) -> None:
    few, many = (
        algorithms(convolution(images=n), which, 4, DEVICE, CONSTANTS, flops_us).fastest_us(ALIKE)[0]
        for n in sorted((one, other))
    )
    assert few <= many
