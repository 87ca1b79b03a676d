"""Elementwise kernels without shapes: what names and launches state, by hand."""

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic.kernels.launched import launched_us
from gnnperf.analytic.kernels.nodes import compute_nodes_us
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import CONCATENATION, elementwise_us, stream_us
from gnnperf.hardware import load_device

V100 = load_device("v100_sxm2_16gb")
N = "void at::native::"
ADD = f"{N}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)"
HALF_COPY = (
    f"{N}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda(c10::Half)#1}, at::detail::Array<char*, 2>, TrivialOffsetCalculator<1, unsigned int> >"
)
WHERE = (
    f"{N}elementwise_kernel<128, 2, {N}gpu_kernel_impl_nocast<where_kernel_impl::{{lambda(bool, float, float)#1}}> >"
)
STRIDED_ADD = f"{N}elementwise_kernel<128, 4, {N}gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> > >"
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


CAT = f"{N}(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)"
CAT_HALF = f"{N}CatArrayBatchedCopy_aligned16_contig<{N}OpaqueType<2u>, unsigned int, 3, 128, 1>(char*)"
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
        f"{N}vectorized_elementwise_kernel<4, F<float2>, at::detail::Array<char*, 2> >",
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
