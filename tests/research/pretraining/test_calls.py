"""Op calls of traces as rows of op tables: by size, whatever op multiplied."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.hardware import load_device
from research.pretraining.calls import rows_of_calls
from research.pretraining.rows import BATCHED_PRODUCTS, CONVOLUTIONS, MATRIX_PRODUCTS, PRODUCTS
from research.tables.neusight import read_neusight

V100, A100, P100 = (load_device(name) for name in ("v100_pcie_32gb", "a100_sxm_80gb", "p100"))
ADDMM = "[[64], [32, 128], [128, 64]]"


def product(op: str, dims: str, dtype: str | None, flops: float, **more: bool) -> KernelCall:
    return KernelCall(op, dims, dtype, "gemm", flops, 1e5, **more)  # type: ignore[arg-type]


def convolution(op: str = "aten::cudnn_convolution", dims: str = "[[8, 16, 56, 56], [32, 16, 3, 3]]",
                out: int = 56) -> KernelCall:  # fmt: skip
    return KernelCall(op, dims, "float32", "conv", 2.0 * 8 * 32 * out**2 * 16 * 9, 1e6)


def test_an_addmm_is_a_linear_of_its_sizes() -> None:
    result = rows_of_calls([product("aten::addmm", ADDMM, "float32", 2.0 * 32 * 128 * 64)], V100)
    row = result.rows.iloc[0]
    assert (row["kind"], row["op"], row["shapes"]) == (PRODUCTS.name, "aten::linear", "[[32, 128], [64, 128]]")
    assert (row["m"], row["n"], row["k"], row["flops"]) == (32, 64, 128, 2.0 * 32 * 128 * 64)
    assert np.isnan(row["latency_us"])


def test_each_row_names_its_call() -> None:
    view = KernelCall("aten::relu", "[[4]]", "float32", "elementwise", 4.0, 32.0)
    half = product("aten::mm", "[[64, 64], [64, 64]]", "bfloat16", 2.0 * 64**3)
    batch = product("aten::bmm", "[[4, 64, 64], [4, 64, 64]]", "float32", 8.0 * 64**3)
    result = rows_of_calls([view, half, batch], A100)
    assert dict(zip(result.places.tolist(), result.rows["kind"], strict=True)) == {
        1: MATRIX_PRODUCTS.name, 2: BATCHED_PRODUCTS.name
    }  # fmt: skip


def test_a_batch_of_one_is_a_product() -> None:
    one = product("aten::bmm", "[[1, 64, 64], [1, 64, 64]]", "float32", 2.0 * 64**3)
    assert rows_of_calls([one], V100).rows["kind"].tolist() == [PRODUCTS.name]


@pytest.mark.parametrize(
    "call",
    [
        product("aten::addmm", ADDMM, "float16", 2.0 * 32 * 128 * 64),  # a dtype that no table has
        product("aten::addmm", ADDMM, "float32", 1.0 * 32 * 128 * 64),  # half the FLOPs: a sparse operand
        product("aten::addmm", ADDMM, "float32", 2.0 * 32 * 128 * 64, tf32=True),
        product("aten::addmm", ADDMM, "float32", float("nan")),
        product("aten::bmm", "[[4, 64, 64], [4, 64, 64]]", "bfloat16", 8.0 * 64**3),
        convolution(),  # this GPU has TF32, which convolutions use
    ],
)
def test_what_the_tables_do_not_tell_has_no_row(call: KernelCall) -> None:
    assert rows_of_calls([call], A100).rows.empty


def test_bfloat16_without_matrix_units_has_no_row() -> None:
    half = product("aten::mm", "[[64, 64], [64, 64]]", "bfloat16", 2.0 * 64**3)
    assert rows_of_calls([half], P100).rows.empty


def test_a_convolution_has_the_padding_that_its_result_reports() -> None:
    row = rows_of_calls([convolution()], V100).rows.iloc[0]
    assert (row["kind"], row["in_size"], row["kernel"], row["stride"]) == (CONVOLUTIONS.name, 56, 3, 1)
    assert row["padding"] == 1
    assert row["flops"] == convolution().flops
    assert rows_of_calls([convolution(out=28)], V100).rows["stride"].tolist() == [2]


def test_gradients_groups_and_oblong_images_have_no_row() -> None:
    grouped = convolution(dims="[[8, 16, 56, 56], [32, 8, 3, 3]]")
    oblong = convolution(dims="[[8, 16, 56, 28], [32, 16, 3, 3]]")
    backward = convolution("aten::convolution_backward", "[[8, 32, 56, 56], [8, 16, 56, 56], [32, 16, 3, 3]]")
    assert rows_of_calls([grouped, oblong, backward], V100).rows.empty


@pytest.mark.mirror
def test_a_call_becomes_the_row_of_its_table(mirror: object) -> None:
    """Rows of NeuSight's tables, turned into calls and back."""
    rows = read_neusight(mirror).rows  # type: ignore[arg-type]
    for kind, family in ((PRODUCTS, "gemm"), (BATCHED_PRODUCTS, "gemm"), (CONVOLUTIONS, "conv")):
        single = (rows["batch"] == 1) if kind is BATCHED_PRODUCTS else False
        some = rows[(rows["table"] == kind.table) & ~single].iloc[:200].reset_index(drop=True)
        calls = [KernelCall(row["op"], row["shapes"], "float32", family, row["flops"], row["moved_bytes"])
                 for row in some.to_dict("records")]  # fmt: skip
        result = rows_of_calls(calls, V100)
        assert result.places.tolist() == list(range(200))
        assert set(result.rows["kind"]) == {kind.name}
        assert result.rows["shapes"].tolist() == some["shapes"].tolist()
        assert np.allclose(result.rows["moved_bytes"], some["moved_bytes"], rtol=0.2 if kind is CONVOLUTIONS else 1e-9)
