"""Sizes of linear layers and batches from the tiles of their forward and backward launches, by hand."""

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic.kernels.launched_gemms import Sizes, launched_sizes
from gnnperf.analytic.kernels.nodes import compute_nodes_us
from gnnperf.hardware import load_device

Row = tuple[str, str, str]
FORWARD: Row = ("aten::addmm", "volta_sgemm_128x64_tn", "[4,32,1]")  # N in (384, 512], M in (1984, 2048]
INPUT: Row = ("aten::mm", "volta_sgemm_128x32_nn", "[8,64,1]")  # K in (896, 1024], M in (2016, 2048]
WEIGHT: Row = ("aten::mm", "volta_sgemm_64x32_sliced1x4_nt", "[15,16,2]")  # K in (896, 960], N in (480, 512]
M, N, K = 2048, 512, 960
OTHER: Row = ("aten::addmm", "volta_sgemm_128x64_tn", "[1,2,1]")
NEXT: Row = ("aten::addmm", "volta_sgemm_128x64_tn", "[1,32,1]")  # N up to 128, M as in FORWARD
ADD: Row = ("aten::add", "vectorized_elementwise_kernel", "[1,1,1]")


def table(*rows: Row) -> pd.DataFrame:
    result = pd.DataFrame(rows, columns=["op_name", "event_name", "grid"])
    return result.assign(rank=0, stream=7, phase="forward").astype(
        dict.fromkeys(["op_name", "event_name", "grid"], "category")
    )


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        # the latest forward that fits: another layer runs in between
        ((FORWARD, OTHER, ADD, INPUT, WEIGHT), {0: (M, N, K), 3: (M, K, N), 4: (N, K, M)}),
        # a window that begins in a backward
        ((INPUT, WEIGHT), {0: (2048, 960, 512), 1: (512, 960, 2048)}),
        # the first layer has no gradient of its input, so only the forward shows its tokens
        ((FORWARD, WEIGHT), {0: (2048, 512, 960), 1: (512, 960, 2048)}),
        # one forward serves one backward; a forward without one is unknown
        ((FORWARD, INPUT, WEIGHT, WEIGHT), {0: (M, N, K), 1: (M, K, N), 2: (N, K, M)}),
        ((FORWARD,), {}),
        # the gradient of the input by itself states no outputs
        ((FORWARD, INPUT), {}),
        # a grid of two axes is no launch of cuBLAS
        ((FORWARD, (*WEIGHT[:2], "[15,16]")), {}),
    ],
)
def test_sizes(rows: tuple[Row, ...], sizes: dict[int, tuple[int, int, int]]) -> None:
    assert launched_sizes(table(*rows)) == {row: Sizes(*each) for row, each in sizes.items()}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # the columns of the last result, which the backward of that layer states better than its tiles
        ((FORWARD, NEXT, INPUT, WEIGHT), Sizes(2048, 128, 512)),
        ((FORWARD, NEXT), Sizes(2048, 128, 512)),
        ((FORWARD, (*NEXT[:2], "[1,31,1]")), None),  # other rows
    ],
)
def test_a_forward_without_a_backward_sums_over_the_last_result(rows: tuple[Row, ...], expected: Sizes | None) -> None:
    assert launched_sizes(table(*rows)).get(1) == expected


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        # forward, gradient of the second operand, of the first one; letters: the operand was stored transposed or not
        (("tn", "nt", "nn"), [(80, 16, 1008), (1008, 16, 80), (80, 1008, 16)]),
        (("nn", "nt", "tn"), [(80, 16, 1008), (1008, 16, 80), (80, 1008, 16)]),
        (("tt", "nn", "nn"), [(80, 16, 1008), (1008, 16, 80), (80, 1008, 16)]),
        (("tn", None, "nn"), [(80, 16, 1008), None, (80, 1008, 16)]),
        (("tn", "nt", None), [(80, 16, 1008), (1008, 16, 80), None]),
        (("tn", "tn", None), [None, None, None]),
    ],
)
def test_batches(kinds: tuple[str | None, ...], expected: list[tuple[int, int, int] | None]) -> None:
    """Rows in (64, 96], columns up to 32, summed length in (992, 1024], 4,096 of them: the middles."""
    grids = ("[1,3,4096]", "[1,32,4096]", "[32,3,4096]")
    rows = [("aten::bmm", f"volta_sgemm_32x32_{kind}", grid) for kind, grid in zip(kinds, grids, strict=True)]
    launched = launched_sizes(table(*rows).assign(phase=["forward", "backward", "backward"]))
    assert [launched.get(row) for row in range(3)] == [each and Sizes(*each, batch=4096) for each in expected]


@pytest.mark.parametrize(
    "gradient",
    [
        ("aten::mm", "volta_sgemm_128x32_nn", "[7,64,1]"),  # K up to 896: the weight's gradient has more
        ("aten::bmm", *INPUT[1:]),
        ("aten::cudnn_convolution", *INPUT[1:]),
        ("aten::mm", "volta_sgemm_128x32_nn", "[8,64,4096]"),  # a batch
        ("aten::mm", "cutlass_80_tensorop_s1688gemm_128x32_nn", "[8,64,1]"),  # its grid may be swizzled
    ],
)
def test_a_launch_that_does_not_fit_is_not_taken(gradient: Row) -> None:
    assert launched_sizes(table(gradient, WEIGHT)) == {}


def test_other_streams_and_tables_without_launches() -> None:
    assert launched_sizes(table(INPUT, WEIGHT).assign(stream=[7, 8])) == {}
    assert launched_sizes(table(INPUT, WEIGHT).drop(columns="grid")) == {}
    assert launched_sizes(table((*INPUT[:2], None), WEIGHT)) == {}  # type: ignore[arg-type]


def test_latencies_are_those_of_products_of_these_sizes() -> None:
    launched = table(FORWARD, INPUT, WEIGHT).assign(
        block="[128,1,1]", input_dims=None, dtype=None, family="gemm", num_siblings=1, flops=np.nan, bytes=np.nan
    )
    shapes = [(M, N, K), (M, K, N), (N, K, M)]
    known = launched.assign(
        op_name="aten::mm", dtype="float32", input_dims=[f"[[{m},{k}],[{k},{n}]]" for m, n, k in shapes],
        flops=2.0 * M * N * K, bytes=4.0 * (M * N + M * K + N * K),
    )  # fmt: skip
    v100 = load_device("v100_sxm2_16gb")
    assert compute_nodes_us(launched, v100, 4.0) == pytest.approx(compute_nodes_us(known, v100, 4.0))
