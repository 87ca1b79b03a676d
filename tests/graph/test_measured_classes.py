"""Classes and families of measured nodes."""

import numpy as np
import pytest
from traces import all_reduce, call, copy, graph_of, kernel, mark, op

from gnnperf.core import EVIDENCE_COLUMNS, OpFamily
from gnnperf.graph.measured_classes import (
    CLASS_LEVELS,
    kernel_family,
    kernel_tokens,
    measured_families,
    measurement_classes,
)

LAUNCH = {"grid": "[4,1,1]", "block": "[128,1,1]", "registers": 32, "shared_bytes": 0, "occupancy_percent": 50}


def test_compute_nodes_carry_how_their_kernel_was_launched() -> None:
    graph = graph_of(
        mark(0, 0, 300), op("aten::mm", 5, 20), call("cudaLaunchKernel", 10, 12, corr=1),
        kernel("gemm", 20, 30, corr=1, **LAUNCH), copy("Memcpy DtoD (Device -> Device)", 30, 40, bytes=8.0),
        all_reduce(40, 60, **LAUNCH), call("cudaGraphLaunch", 100, 110, corr=9),
        kernel("a", 110, 120, corr=9, **LAUNCH), kernel("b", 120, 130, corr=9, **LAUNCH),
    )  # fmt: skip
    rows = graph.nodes.set_index("event_name")[list(EVIDENCE_COLUMNS)]
    assert rows.loc["gemm"].tolist() == list(LAUNCH.values())
    others = rows[rows.index != "gemm"]
    assert others[["grid", "block"]].isna().all(axis=None)
    assert (others[["registers", "shared_bytes", "occupancy_percent"]] == -1).all(axis=None)


def test_a_class_is_the_same_work_and_coarser_classes_contain_it() -> None:
    events = [mark(0, 0, 300)]
    for n, name in enumerate(("gemm<1>", "gemm<1>", "gemm<2>", "my_gemv", "add_functor")):
        at = 10.0 + 20 * n
        events += [op("aten::mm", at, at + 9), call("cudaLaunchKernel", at + 1, at + 2, corr=n + 1),
                   kernel(name, at + 10, at + 15, corr=n + 1)]  # fmt: skip
    nodes = graph_of(*events).nodes
    rows = nodes.index[nodes["node_type"] == "compute"]
    classes = measurement_classes(nodes)[:, rows]
    assert len(classes) == len(CLASS_LEVELS)
    sizes = [len(set(level.tolist())) for level in classes]
    assert sizes == [4, 4, 4, 3, 1, 1]  # by name, function, family of the op; then all kernels
    assert classes[0][0] == classes[0][1] != classes[0][2]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ampere_sgemm_128x64_tn", OpFamily.GEMM),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16", OpFamily.GEMM),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_64x64_32x6_nn_align8>(Params)", OpFamily.GEMM),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)", OpFamily.ATTENTION),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
            OpFamily.ELEMENTWISE,
        ),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, sum>>(int)", OpFamily.REDUCTION),
        ("void split_embedding_codegen_forward_unweighted_kernel<float>(int)", OpFamily.EMBEDDING),
        ("void permute_2D_data_kernel<int, long>(int)", OpFamily.INDEXING),
        ("void cudnn::cnn::im2col4d_kernel<float, int>(int)", OpFamily.CONV),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>(float*)", OpFamily.COPY),
        ("triton_red_fused_sum_3", OpFamily.REDUCTION),
        ("frobnicate", OpFamily.UNKNOWN),
    ],
)
def test_families_of_kernel_names(name: str, family: OpFamily) -> None:
    assert kernel_family(name) is family


def test_words_of_a_kernel_name() -> None:
    assert kernel_tokens("ampere_sgemm_128x64_tn") == ("ampere", "sgemm", "128x64", "tn")
    assert kernel_tokens("CatArrayBatchedCopy<float, 4>") == ("cat", "array", "batched", "copy", "float")


def test_only_an_unknown_family_is_told_by_the_kernel() -> None:
    dims, types = "[[8,8],[8,8]]", '["float","float"]'
    nodes = graph_of(
        mark(0, 0, 200), op("aten::mm", 5, 20, input_dims=dims, input_types=types), op("vendor::x", 30, 40),
        call("cudaLaunchKernel", 6, 8, corr=1), call("cudaLaunchKernel", 31, 33, corr=2),
        kernel("my_softmax", 20, 30, corr=1), kernel("my_softmax", 40, 50, corr=2),
    ).nodes  # fmt: skip
    families = np.asarray(measured_families(nodes))
    assert families[nodes["node_type"] == "compute"].tolist() == ["gemm", "softmax"]
    assert set(families[nodes["node_type"] == "host"]) == {"unknown"}
