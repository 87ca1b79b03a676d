"""Convolutions as products: sizes by hand, and prices that are sums done in the head."""

from dataclasses import replace

import numpy as np
import pytest
from round_device import CONSTANTS, DEVICE, ROUND

from gnnperf.analytic.convolution import model
from gnnperf.analytic.convolution.calls import convolutions_us, has_pixels_as_rows, has_torchs_kernel
from gnnperf.analytic.convolution.kernels import depthwise_us, matrix_units_us
from gnnperf.analytic.gemm.model import SPLITS, WHOLE, Products, Splits
from research.fitting.convolution import result_edge
from tests.analytic.kernels.calls import call

FORWARD, GRAD_INPUT, GRAD_WEIGHT = model.ConvolutionPass


def convolution(images: float = 2, channels: float = 4, out: float = 8, size: float = 10, window: float = 3,
                stride: float = 1, padding: float = 1, groups: float = 1) -> model.Convolutions:  # fmt: skip
    edge = float(result_edge(*(np.array([float(v)]) for v in (size, window, stride, padding)))[0])
    sizes = (images, channels, out, size, size, window, window, edge, edge, stride, groups)
    return model.Convolutions(*(np.array([float(v)]) for v in sizes))


def sizes(result: Products) -> tuple[float, ...]:
    return tuple(float(v[0]) for v in (result.batch, result.m, result.n, result.k))


def flops_us(result: Products, splits: Splits = SPLITS) -> np.ndarray:
    return result.batch * result.m * result.n * result.k  # as if a multiply-add took a microsecond


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
def test_sizes(call: model.Convolutions, which: model.ConvolutionPass, expected: tuple[float, ...]) -> None:
    assert sizes(model.as_products(call, which, 4)) == expected


def test_all_three_passes_do_the_same_arithmetic_where_every_tap_counts() -> None:
    each = [flops_us(model.as_products(convolution(padding=1), which, 4))[0] for which in model.ConvolutionPass]
    assert each == pytest.approx([57600.0] * 3)


def test_patches_are_not_moved() -> None:
    assert model.moved_bytes(convolution(), 4) == pytest.approx([4 * (2 * 4 * 100 + 8 * 4 * 9 + 2 * 8 * 100)])


@pytest.mark.parametrize(("which", "expected"), [(FORWARD, WHOLE), (GRAD_INPUT, WHOLE), (GRAD_WEIGHT, SPLITS)])
def test_only_the_weight_gradient_divides_what_it_sums(which: model.ConvolutionPass, expected: Splits) -> None:
    seen: list[Splits] = []

    def values(result: Products, splits: Splits = SPLITS) -> np.ndarray:
        seen.append(splits)
        return flops_us(result)

    model.algorithms(convolution(), which, 4, DEVICE, CONSTANTS, values)
    assert seen == [SPLITS, expected, SPLITS]  # fused, direct, unfused


def test_fused_filtering_multiplies_16_times_for_4_results_in_blocks_of_8_by_8() -> None:
    # 10 x 10 results: 2 x 2 blocks of 4 x 4 tiles, for 2 images
    assert sizes(model.fused_products(convolution(), FORWARD, 4)) == (1, 16 * 2 * 4 * 16, 8, 4)
    assert sizes(model.fused_products(convolution(), GRAD_INPUT, 4)) == (1, 16 * 2 * 4 * 16, 4, 8)
    assert model.fused_products(convolution(), FORWARD, 4).item_bytes == 1.0  # 4 pixels become 16 places
    whole, one_more = (model.fused_products(convolution(size=edge), FORWARD, 4).m[0] for edge in (8, 9))
    assert one_more == 4 * whole


def test_unfused_filtering_multiplies_36_times_for_16_results() -> None:
    # 10 x 10 results: 3 x 3 tiles of 4 x 4, for 2 images
    assert sizes(model.unfused_products(convolution(), FORWARD, 4)) == (36, 2 * 9, 8, 4)
    assert sizes(model.unfused_products(convolution(), GRAD_WEIGHT, 4)) == (36, 8, 4, 2 * 9)
    assert model.weight_bytes(convolution(), 4, 4) == pytest.approx([4 * 8 * (9 + 36) * 4])
    assert model.image_bytes(convolution(), FORWARD, 4) == pytest.approx([2 * 9 * (36 + 16) * (4 + 8) * 4])


ALIKE = model.ConvolutionConstants(1.0, 1.0, 1.0, 1.0, 50.0, 0.1)
SLOW, FREE = 9.0, 1e-6


@pytest.mark.parametrize(
    ("fused", "unfused", "which", "expected"),
    [
        (1.0, 1.0, FORWARD, 36 * 18 * 8 * 4 + (18 * 52 * 12 + 45 * 32) * 4 / 0.5e6),  # 20,736 and the transforms
        (0.5, SLOW, FORWARD, 2.0 + (65536 - 2) / 2 + 25 * 32 * 4 / 0.5e6),
        (SLOW, SLOW, FORWARD, 57600.0),  # direct
        (FREE, SLOW, GRAD_WEIGHT, 57600.0),  # no fused kernel
    ],
)
def test_the_fastest_algorithm_is_taken(
    fused: float, unfused: float, which: model.ConvolutionPass, expected: float
) -> None:
    constants = replace(ALIKE, fused_factor=fused, unfused_factor=unfused)
    result = model.algorithms(convolution(), which, 4, DEVICE, CONSTANTS, flops_us).fastest_us(constants)
    assert result == pytest.approx([expected])


@pytest.mark.parametrize("call", [convolution(stride=2), convolution(window=5, padding=2), convolution(groups=2)])
def test_other_windows_strides_and_groups_are_convolved_directly(call: model.Convolutions) -> None:
    constants = replace(ALIKE, fused_factor=FREE, unfused_factor=FREE)
    direct = flops_us(model.as_products(call, FORWARD, 4))
    assert model.algorithms(call, FORWARD, 4, DEVICE, CONSTANTS, flops_us).fastest_us(constants) == direct


def test_nothing_is_faster_than_moving_the_tensors() -> None:
    constants = model.ConvolutionConstants(FREE, FREE, FREE, FREE, FREE, FREE)
    result = model.algorithms(convolution(), FORWARD, 4, DEVICE, CONSTANTS, flops_us).fastest_us(constants)
    assert result == pytest.approx([2.0 + 4 * 2688 / 0.5e6])


POINTWISE = {"channels": 8, "window": 1, "padding": 0}
BLOCKS_US = (2 * 2 * 32 * 128 + 8 * 32 * 32) * 50 / 1e6  # 2 images and results of 32 x 128; 8 filters of 32 x 32


@pytest.mark.parametrize(
    ("which", "own", "item", "expected"),
    [
        (FORWARD, True, 2, 800 * (200 + 20 * 9) / 1e6),  # 2 x 4 x 10 x 10 results of 9 taps
        (GRAD_INPUT, True, 2, 800 * (500 + 10 * 9) / 1e6),
        # 4 x 9 blocks of 2 warps, an image each: 4 rounds of 32 results and 2 to start
        (GRAD_WEIGHT, True, 2, 36 * 2 * 32 * 6 * 40 / 1e6 + 6 * 200 / 1e3),
        (GRAD_WEIGHT, False, 4, 7200 * 100 / 1e6),  # cuDNN's: a cost per multiply-add
        (GRAD_WEIGHT, False, 2, 7200 * 10 / 1e6),  # channels last
    ],
)
def test_depthwise_convolutions_are_no_products(
    which: model.ConvolutionPass, own: bool, item: int, expected: float
) -> None:
    us = depthwise_us(convolution(out=4, groups=4), which, np.array([own]), item, ROUND)
    assert us == pytest.approx([2.0 + expected])


@pytest.mark.parametrize(
    ("op", "dtype", "own"),
    [("_conv_depthwise2d", "float32", True), ("_convolution", "float16", True), ("_convolution", "float32", False),
     ("cudnn_convolution", "float16", False)],
)  # fmt: skip
def test_the_op_shows_whose_depthwise_kernel_runs_or_else_the_dtype(op: str, dtype: str, own: bool) -> None:
    requested = call("aten::_conv_depthwise2d", [[2, 4, 10, 10], [4, 1, 3, 3], [], [], [], [], []], dtype,
                     ["", "", "[3, 3]", "", "[1, 1]", "[1, 1]", "[1, 1]"])  # fmt: skip
    assert (requested.flops, requested.moved_bytes / requested.item_bytes) == (2 * 800 * 9, 800 + 36 + 800)
    us = convolutions_us([replace(requested, op_name=f"aten::{op}")], ROUND)
    assert us == pytest.approx([2.0 + (800 * (200 + 20 * 9) if own else 7200 * 10) / 1e6])


@pytest.mark.parametrize(
    ("call", "which", "turned", "expected"),
    [
        (convolution(channels=3), FORWARD, 1, 2.0 * 200 * 8 * 32 * 9 + BLOCKS_US),  # 3 channels count as 32
        (convolution(channels=32), FORWARD, 1, 1.5 * 200 * 8 * 32 * 9 + BLOCKS_US),
        (convolution(channels=3), FORWARD, 0, 2.0 + 200 * 32 * 27 * 5 / 1e6),  # on lanes, in tiles of 32 channels
        (convolution(channels=64, out=64, groups=16), FORWARD, 0, 1.5 * 2 * 200 * 32 * 32 * 9),  # 2 of 32, not 16 of 4
        (convolution(**POINTWISE, size=8), FORWARD, 0, 128 * 8 * 8),  # rows of 64 pixels are 8 vectors
        (convolution(**POINTWISE, size=10), FORWARD, 0, 3.0 * 200 * 8 * 8),  # 100 pixels are 12.5
        (convolution(**POINTWISE, size=8), GRAD_WEIGHT, 0, 128 * 8 * 8 + 2 * 8 * 8 * 4 / 0.5e6),  # 2 parts, added up
    ],
)
def test_on_matrix_units(
    call: model.Convolutions, which: model.ConvolutionPass, turned: float, expected: float
) -> None:
    us = matrix_units_us(call, which, np.full(1, float(turned)), 2, ROUND, flops_us)
    assert us == pytest.approx([expected])


def test_implicit_products_read_pixels_once() -> None:
    tensors, patches = 2 * 32 * 100 + 32 * 32 * 9 + 2 * 32 * 100, 200 * 288 + 288 * 32 + 200 * 32
    us = matrix_units_us(convolution(channels=32, out=32), FORWARD, np.zeros(1), 2, ROUND,
                         lambda result, splits=(): 1e3 * result.item_bytes)  # fmt: skip
    assert us == pytest.approx([1.5e3 * 2 * tensors / patches])


@pytest.mark.parametrize(("kernels", "by_image"), [(2, False), (3, True)])  # of both gradients
def test_a_kernel_that_adds_up_shows_products_by_image(kernels: int, by_image: bool) -> None:
    shapes = [[2, 8, 10, 10], [2, 8, 10, 10], [8, 8, 1, 1]]
    requested = replace(call("aten::convolution_backward", shapes, "float16"), num_kernels=kernels)
    assert has_pixels_as_rows(requested) is not by_image
    us = matrix_units_us(convolution(**POINTWISE), GRAD_WEIGHT, np.zeros(1), 2, ROUND, flops_us, not by_image)
    assert us == pytest.approx([3.0 * 200 * 8 * 8 + 2 * 8 * 8 * 4 / 0.5e6 if by_image else 200 * 8 * 8])
    assert has_torchs_kernel(requested) is not by_image  # of a depthwise one
