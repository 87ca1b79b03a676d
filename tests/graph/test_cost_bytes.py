"""Bytes of ops, counted by hand."""

from __future__ import annotations

import math

import pytest

from gnnperf.core.schema import OpFamily
from tests.graph.op_calls import cost

BYTES: dict[str, tuple[str, list, list[str] | None, list[str] | None, float]] = {  # call -> bytes
    "mm reads both, writes the result": (
        "aten::mm", [[3, 4], [4, 5]], ["c10::Half", "c10::Half"], ["", ""], 2 * (12 + 20 + 15)),
    "scaled mm writes 16 bits": ("aten::_scaled_mm", [[3, 4], [4, 5], [], []],
                                 ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2, None, 12 + 20 + 2 * 15),
    "addmm reads its bias": ("aten::addmm", [[5], [3, 4], [4, 5]], ["float"] * 3, None, 4 * (5 + 12 + 20 + 15)),
    "add": ("aten::add", [[3, 4], [3, 4], []], ["float", "float", "Scalar"], None, 4 * 36),
    "add_ in place": ("aten::add_", [[3, 4], [3, 4], []], ["float", "float", "Scalar"], None, 4 * 36),
    "add broadcasts": ("aten::add", [[3, 1], [4], []], ["float", "float", "Scalar"], None, 4 * (3 + 4 + 12)),
    "mul by a 0-dim double keeps the dtype": (
        "aten::mul", [[3, 4], []], ["c10::BFloat16", "double"], None, 2 * 24 + 8),
    "comparison writes bool": ("aten::eq", [[3, 4], []], ["float", "Scalar"], None, 4 * 12 + 12),
    "where": ("aten::where", [[12], [12], [12]], ["bool", "float", "float"], None, 12 + 3 * 48),
    "out= is not read": ("aten::clamp_min", [[8], [], [8]], ["float", "Scalar", "float"], None, 64),
    "fill_": ("aten::fill_", [[8], []], ["float", "Scalar"], None, 32),
    "copy_ between dtypes": ("aten::copy_", [[8], [8], []], ["c10::Half", "float", "Scalar"], None, 16 + 32),
    "clone": ("aten::clone", [[8], []], ["long int", "Scalar"], None, 128),
    "cat": ("aten::cat", [[[2, 3], [4, 3]], []], ["TensorList", "Scalar"], ["", "0"], 2 * 4 * 18),
    "index_select": ("aten::index_select", [[10, 6], [], [4]], ["float", "Scalar", "long int"], ["", "0", ""],
                     4 * 8 + 2 * 4 * 24),
    "gather": ("aten::gather", [[10], [], [4], []], ["float", "Scalar", "long int", "Scalar"], None, 32 + 2 * 16),
    "index with a full slice": ("aten::index", [[5, 6], [[], [4]]], ["float", "TensorList"], None, 4 * 8 + 2 * 4 * 20),
    "embedding": ("aten::embedding", [[100, 16], [8]], ["float", "long int"], None, 64 + 2 * 4 * 128),
    "embedding_bag": ("aten::_embedding_bag", [[100, 16], [40], [8]], ["float", "long int", "long int"], None,
                      8 * 48 + 4 * 16 * (40 + 8)),
    "embedding_dense_backward": ("aten::embedding_dense_backward", [[8, 16], [8], [], [], []],
                                 ["float", "long int", "Scalar", "Scalar", "Scalar"], ["", "", "100", "-1", "False"],
                                 64 + 3 * 512 + 4 * 1600),
    "softmax": ("aten::_softmax", [[4, 8], [], []], ["float", "Scalar", "Scalar"], ["", "-1", "False"], 2 * 128),
    "softmax half to float": ("aten::_softmax", [[4, 8], [], []], ["c10::Half", "Scalar", "Scalar"],
                              ["", "-1", "True"], 64 + 128),
    "layer norm": ("aten::native_layer_norm", [[4, 8], [], [8], [8], []],
                   ["float", "ScalarList", "float", "float", "Scalar"], None, 2 * 128 + 64),
    "batch norm reads twice": ("aten::native_batch_norm", [[2, 3, 4], [3], [3], [3], [3], []],
                               ["float"] * 5 + ["Scalar"], ["", "", "", "", "", "True"], 3 * 96 + 4 * 12),
    "batch norm in evaluation reads once": ("aten::native_batch_norm", [[2, 3, 4], [3], [3], [3], [3], []],
                                            ["float"] * 5 + ["Scalar"], ["", "", "", "", "", "False"], 2 * 96 + 4 * 12),
    "sum over an axis": ("aten::sum", [[4, 8], [], []], ["float", "ScalarList", "Scalar"], ["", "[1]", "False"],
                         128 + 16),
    "sum of all": ("aten::sum", [[4, 8], []], ["float", ""], ["", ""], 128 + 4),
    "max pool": ("aten::max_pool2d_with_indices", [[1, 2, 4, 4], [], [], [], [], []],
                 ["float"] + ["ScalarList"] * 4 + ["Scalar"], ["", "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "False"],
                 128 + 8 * 12),
    "foreach add_": ("aten::_foreach_add_", [[[4], [6]], [[4], [6]], []], ["TensorList", "TensorList", "Scalar"], None,
                     3 * 40),
    "fused adam reads four lists, writes three": (
        "aten::_fused_adam_", [[[10]], [[10]], [[10]], [[10]], [], [[]]], ["TensorList"] * 6, None, 7 * 40),
    "mse_loss": ("aten::mse_loss", [[8], [8], []], ["float", "float", "Scalar"], None, 64 + 4),
    "fused pointwise kernel touches its buffers": (
        "triton_poi_fused_add_8", [[8], [8], [8], []], ["float"] * 3 + ["Scalar"], None, 96),
}  # fmt: skip


@pytest.mark.parametrize("case", BYTES)
def test_bytes_by_hand(case: str) -> None:
    name, dims, types, values, expected = BYTES[case]
    assert cost(name, dims, types, values).bytes == expected


def test_fbgemm_lookup_by_hand() -> None:
    dims = [[0], [1000], [0], [0, 0], [2], [2], [3], [], [], [3], [], [30], [9]]
    types = ["float", "c10::Half", "c10::Half", "c10::Half", "int", "long", "int", "Scalar", "Scalar", "long", "Scalar",
             "long", "long"]  # fmt: skip
    name = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
    known = cost(name, dims, types, [""] * 7 + ["24"] + [""] * 5)  # 2 tables, batch 4, total dimension 24
    assert known.bytes == 8 * (30 + 9) + 30 * 12 * 2 + 4 * 24 * 4
    unknown = cost(name, dims, types)
    assert math.isnan(unknown.bytes) and unknown.family is OpFamily.EMBEDDING
