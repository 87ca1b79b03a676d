"""A product with an operand in blocks or single values costs what is stored of it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from traces import Event, call, kernel, mark, op, run_of, trace

from gnnperf.core.schema import NodeType
from gnnperf.graph import build_graph
from gnnperf.graph.cost import op_cost
from gnnperf.graph.event_columns import rank_events
from gnnperf.graph.op_costs import StoredOperand, sparse_products, whole_op_costs
from gnnperf.trace import read_run

BLOCKS, VALUES = "[[16,16,16]]", "[[4096]]"
TYPES = '["float","float","float","Scalar","Scalar"]'
DENSE_FLOPS, DENSE_BYTES = 2 * 64 * 32 * 128, 4 * (2 * 64 * 32 + 64 * 128 + 128 * 32)
# 16 blocks of 16 x 16 keep half of 64 x 128; an index of 8 bytes for each, and 5 pointers to rows of blocks
STORED_BYTES = DENSE_BYTES - 4 * 4096 + 8 * (16 + 5)


def product(stored: str | None = BLOCKS, requested: str = "[[64,128]]") -> list[Event]:
    """addmm > values > alias, as torch 2.13 records it of a BSR matrix."""
    dims = "[[64,32],[64,128],[128,32],[],[]]"
    return [
        op("aten::addmm", 0, 100, input_dims=dims, input_types=TYPES),
        op("aten::values", 10, 20, input_dims=requested),
        op("aten::alias", 12, 14, input_dims=stored),
    ]


def test_blocks_count_and_so_do_single_values() -> None:
    result = [sparse_products(rank_events(trace(*product(stored)), 0)) for stored in (BLOCKS, VALUES)]
    assert result == [
        {0: StoredOperand(8192, 4096, 8.0 * (16 + 4 + 1))},
        {0: StoredOperand(8192, 4096, 8.0 * (4096 + 64 + 1))},
    ]


def test_the_cost_is_that_of_what_is_stored() -> None:
    costs = whole_op_costs(rank_events(trace(*product()), 0), np.array([0]))
    assert (costs.flops[0], costs.bytes[0], costs.family[0]) == (DENSE_FLOPS / 2, STORED_BYTES, "gemm")


def test_the_kernel_of_a_triton_op_inside_costs_it_too() -> None:
    addmm, values, alias = product()
    inside = op("triton::_triton_bsr_dense_addmm_out", 5, 90, input_dims="[[64,32],[64,128],[128,32]]")
    run = run_of(trace(mark(0, 0, 200), addmm, inside, values, alias, call("cuLaunchKernel", 40, 50, corr=1),
                       kernel("_bsr_strided_addmm_kernel", 60, 80, corr=1)))  # fmt: skip
    nodes = build_graph(run).nodes
    node = nodes[nodes["event_name"] == "_bsr_strided_addmm_kernel"].iloc[0]
    assert (node["flops"], node["bytes"], node["op_name"]) == (DENSE_FLOPS / 2, STORED_BYTES, "aten::addmm")


@pytest.mark.parametrize(
    ("stored", "requested"), [(None, "[[64,128]]"), (BLOCKS, "[[7,9]]"), ("[[2,2]]", "[[64,128]]"), (BLOCKS, "[[64]]")]
)
def test_what_is_not_recorded_or_another_tensor_changes_nothing(stored: str | None, requested: str) -> None:
    costs = whole_op_costs(rank_events(trace(*product(stored, requested)), 0), np.array([0]))
    assert (costs.flops[0], costs.bytes[0]) == (DENSE_FLOPS, DENSE_BYTES)


@pytest.mark.parametrize(("blocks", "index"), [((16, 16), 8 * (16 + 4 + 1)), (None, 8 * (4096 + 64 + 1))])
def test_what_torch_records_of_a_sparse_weight(blocks: tuple[int, int] | None, index: int, tmp_path: Path) -> None:
    filled = torch.ones(4, 16, 8, 16)
    filled[::2] = 0  # every other row of blocks
    weight = filled.reshape(64, 128)
    with warnings.catch_warnings(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as result:
        warnings.simplefilter("ignore")  # torch calls compressed sparse tensors a beta feature
        sparse = weight.to_sparse_bsr(blocks) if blocks else weight.to_sparse_csr()
        torch.nn.functional.linear(torch.ones(32, 128), sparse)
    result.export_chrome_trace(str(tmp_path / "rank0.json"))
    nodes = build_graph(read_run(tmp_path)).nodes
    node = nodes[(nodes["op_name"] == "aten::linear") & (nodes["node_type"] == NodeType.COMPUTE)].iloc[0]
    dense_bytes = 4 * (32 * 128 + 64 * 128 + 32 * 64)
    assert (node["flops"], node["bytes"]) == (2 * 32 * 4096, dense_bytes - 4 * 4096 + index)


# --- 2:4: values [m, k / 2] and places, or both in one tensor

M, K, N = 64, 128, 32
STORED = {
    "aten::_cslt_sparse_mm": [[M * K * 9 // 16], [K, N], []],
    "aten::_sparse_semi_structured_mm": [[M, K // 2], [M, K // 16], [K, N]],
    "aten::_sparse_semi_structured_addmm": [[M], [M, K // 2], [M, K // 16], [K, N]],
    "aten::_sparse_semi_structured_linear": [[2, N // 2, K], [M, K // 2], [M, K // 16], []],
}


@pytest.mark.parametrize("name", STORED)
def test_two_of_four_by_hand(name: str) -> None:
    shapes = STORED[name]
    types = ["c10::Half" if shape and shape != [M, K // 16] else "short int" if shape else "" for shape in shapes]
    cost = op_cost(name, json.dumps(shapes), json.dumps(types), None)
    retained, places, bias = M * K // 2, M * K // 16, M if "addmm" in name else 0
    assert (cost.flops, str(cost.family), cost.dtype) == (2.0 * retained * N, "gemm", "float16")
    assert cost.bytes == 2 * (retained + places + K * N + M * N + bias)


def test_rows_of_a_compressed_matrix_stay_an_axis_in_later_versions() -> None:
    flat, rows = (op_cost("aten::_cslt_sparse_mm", json.dumps([s, [K, N], []]), None, None)
                  for s in ([M * K * 9 // 16], [M, K * 9 // 16]))  # fmt: skip
    assert flat == rows
    eight = op_cost("aten::_cslt_sparse_mm", json.dumps([[M * K * 10 // 16], [K, N]]), '["signed char"]', None)
    assert np.isnan(eight.flops) or eight.flops != flat.flops  # 8 bits are compressed less
    typed = op_cost("aten::_cslt_sparse_mm", json.dumps([[M * K * 10 // 16], [K, N]]), '["signed char","signed char"]',
                    None)  # fmt: skip
    assert typed.flops == flat.flops


@pytest.mark.parametrize("shapes", [[[M, K // 2], [M, 8], [K + 1, N]], [[M], [M, 8], [K, N]], [[M, K // 2]]])
def test_shapes_that_do_not_belong_together_have_no_cost(shapes: list[list[int]]) -> None:
    assert np.isnan(op_cost("aten::_sparse_semi_structured_mm", json.dumps(shapes), None, None).flops)
