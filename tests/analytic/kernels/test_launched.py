"""Kernels without shapes, by hand: elementwise ones by names and launches, products by the tiles of theirs."""

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic.kernels.launched import launched_us
from gnnperf.analytic.kernels.launched_gemms import Sizes, launched_sizes
from gnnperf.analytic.kernels.nodes import compute_nodes_us
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import CONCATENATION, elementwise_us, stream_us
from gnnperf.hardware import load_device

V100 = load_device("v100_sxm2_16gb")
AT = "void at::native::"
ADD = f"{AT}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)"
HALF_COPY = (
    f"{AT}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda(c10::Half)#1}, at::detail::Array<char*, 2>, TrivialOffsetCalculator<1, unsigned int> >"
)
WHERE = (
    f"{AT}elementwise_kernel<128, 2, {AT}gpu_kernel_impl_nocast<where_kernel_impl::{{lambda(bool, float, float)#1}}> >"
)
STRIDED_ADD = f"{AT}elementwise_kernel<128, 4, {AT}gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> > >"
ADAM = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)"


def nodes(*names: str | None, grid: str | None = "[1000,2,1]", block: str | None = "[128,1,1]") -> pd.DataFrame:
    return pd.DataFrame({"event_name": names, "grid": grid, "block": block}).astype("category").assign(rank=0, stream=7)


@pytest.mark.parametrize(
    ("name", "moved_bytes"),
    [
        (ADD, 2000 * 128 * 4 * 3 * 4),  # threads x elements x tensors x bytes
        (HALF_COPY, 2000 * 128 * 4 * 2 * 2),
        (WHERE, 2000 * 128 * 2 * 4 * 4),  # three arguments and a result
        (STRIDED_ADD, 2000 * 128 * 4 * 3 * 4),
        (ADAM, 2000 * 65536 * 4 * 4),  # chunks x lists x bytes
    ],
)
def test_bytes_follow_from_the_name_and_the_launch(name: str, moved_bytes: float) -> None:
    expected = stream_us(np.array([moved_bytes]), V100, default_memory_constants())
    assert launched_us(nodes(name), {}, V100) == pytest.approx(expected)


CAT = f"{AT}(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)"
CAT_HALF = f"{AT}CatArrayBatchedCopy_aligned16_contig<{AT}OpaqueType<2u>, unsigned int, 3, 128, 1>(char*)"
COPY = HALF_COPY  # of 1,024,000 elements here
LAUNCHED = 2000 * 128 * 4
RESHAPED = "Memcpy DtoD (Device -> Device)"


@pytest.mark.parametrize(
    ("names", "row", "elements", "item"),
    [
        ((COPY, COPY, CAT, ADD), 2, 2 * LAUNCHED, 4),  # two tensors, as the grid states: each from a kernel
        ((ADD, CAT_HALF, RESHAPED, ADD, ADD), 1, LAUNCHED, 2),  # the next kernel reads it
        ((CAT, COPY, COPY, COPY, ADD), 0, 3 * LAUNCHED, 4),  # its slices are copied
        ((ADD, CAT, CAT, ADD), 1, LAUNCHED, 4),  # the next one is another, which an addition reads
        ((ADD, CAT, "volta_sgemm_128x64_tn"), 1, 9e6, 4),  # the first operand of a gemm
        ((CAT, "reduce"), 0, np.nan, 4),
        ((ADD, CAT), 1, np.nan, 4),
    ],
)
def test_a_concatenation_has_the_elements_of_its_neighbors(
    names: tuple[str, ...], row: int, elements: float, item: int
) -> None:
    constants = default_memory_constants()
    expected = elementwise_us(CONCATENATION, np.array([elements]), np.array([2.0 * item * elements]), V100, constants)
    operands = {place: 9e6 for place, name in enumerate(names) if "sgemm" in name}
    launched = launched_us(nodes(*names), operands, V100)
    assert launched[row] == pytest.approx(expected[0], nan_ok=True)


def test_other_kernels_and_unknown_launches_have_no_prediction() -> None:
    others = (
        "volta_sgemm_128x64_tn",
        f"{AT}vectorized_elementwise_kernel<4, F<float2>, at::detail::Array<char*, 2> >",
        None,
    )
    assert np.isnan(launched_us(nodes(*others), {}, V100)).all()
    assert np.isnan(launched_us(nodes(ADD, grid=None), {}, V100)).all()
    assert np.isnan(launched_us(pd.DataFrame({"event_name": [ADD]}), {}, V100)).all()  # a plan has no launches


def test_a_node_with_shapes_keeps_its_form_and_one_without_takes_its_launch() -> None:
    call = {"op_name": "aten::add", "dtype": "float32", "family": "elementwise", "num_siblings": 1}
    shaped = {**call, "input_dims": "[[1024,1000],[1024,1000],[]]", "flops": 1.024e6, "bytes": 3 * 4.096e6}
    table = pd.DataFrame([shaped, {**call, "input_dims": None, "flops": np.nan, "bytes": np.nan}])
    launch = nodes(ADD, ADD)
    with_form, by_launch = compute_nodes_us(pd.concat([table, launch], axis=1), V100, 4.0)
    assert with_form == pytest.approx(compute_nodes_us(table, V100, 4.0)[0], rel=1e-9)
    assert by_launch == pytest.approx(with_form)  # 2,000 blocks of 512 elements are the tensor
    mi300 = load_device("mi300x")
    assert np.isnan(compute_nodes_us(pd.concat([table, launch], axis=1), mi300, 4.0)[1])


Row = tuple[str, str, str]
FORWARD: Row = ("aten::addmm", "volta_sgemm_128x64_tn", "[4,32,1]")  # N in (384, 512], M in (1984, 2048]
INPUT: Row = ("aten::mm", "volta_sgemm_128x32_nn", "[8,64,1]")  # K in (896, 1024], M in (2016, 2048]
WEIGHT: Row = ("aten::mm", "volta_sgemm_64x32_sliced1x4_nt", "[15,16,2]")  # K in (896, 960], N in (480, 512]
M, N, K = 2048, 512, 960
OTHER: Row = ("aten::addmm", "volta_sgemm_128x64_tn", "[1,2,1]")
NEXT: Row = ("aten::addmm", "volta_sgemm_128x64_tn", "[1,32,1]")  # N up to 128, M as in FORWARD
SUM: Row = ("aten::add", "vectorized_elementwise_kernel", "[1,1,1]")


def table(*rows: Row) -> pd.DataFrame:
    result = pd.DataFrame(rows, columns=["op_name", "event_name", "grid"])
    return result.assign(rank=0, stream=7, phase="forward").astype(
        dict.fromkeys(["op_name", "event_name", "grid"], "category")
    )


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        # the latest forward that fits: another layer runs in between
        ((FORWARD, OTHER, SUM, INPUT, WEIGHT), {0: (M, N, K), 3: (M, K, N), 4: (N, K, M)}),
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
