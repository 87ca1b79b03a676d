"""The cost of an op without a formula is the sum over its children; what no child knows stays unknown."""

import json

import numpy as np
import pytest
from traces import Event, call, graph_of, kernel, mark, op, trace

from gnnperf.analytic import AnalyticPredictor
from gnnperf.graph import op_cost, rank_events
from gnnperf.graph.op_costs import _sum_up, sparse_sum_cost, sparse_sums, whole_op_costs
from gnnperf.hardware import default_cluster, load_device

#   0 unknown op
#   +- 1 works: 10 flop, 100 bytes          (hides 2)
#   |  +- 2 works: 7 flop, 70 bytes
#   +- 3 unknown op
#      +- 4 works: flop unknown, 300 bytes
#   5 unknown op with a child that knows its bytes only
#   +- 6 works: flop unknown, 5 bytes
#   7 nothing known
PARENT = np.array([-1, 0, 1, 0, 3, -1, 5, -1])
WORKS = np.array([False, True, True, False, True, False, True, False])
FLOPS = np.array([np.nan, 10.0, 7.0, np.nan, np.nan, np.nan, np.nan, np.nan])
BYTES = np.array([np.nan, 100.0, 70.0, np.nan, 300.0, np.nan, 5.0, np.nan])


def test_children_add_up_and_unknown_is_not_zero() -> None:
    flops, moved, main = _sum_up(PARENT, WORKS, FLOPS, BYTES)
    assert (flops[0], moved[0], main[0]) == (10.0, 400.0, 4)  # the child that moves most gives family and dtype
    assert (flops[1], moved[1]) == (10.0, 100.0)
    assert np.isnan(flops[3]) and moved[3] == 300.0
    assert np.isnan(flops[5]) and moved[5] == 5.0
    assert np.isnan(flops[7]) and np.isnan(moved[7]) and main[7] == -1


TYPES = '["float","float","float","Scalar","Scalar"]'


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


TABLE = "[[1000,4],[1000,4],[]]"


def sparse_update(values: str | None = "[[6,4],[],[]]") -> list[Event]:
    """add_ > add > _nnz, to(values)."""
    return [
        op("aten::add_", 0, 100, input_dims=TABLE, input_types=TYPES),
        op("aten::add", 10, 90, input_dims=TABLE, input_types=TYPES),
        op("aten::_nnz", 20, 21, input_dims="[[1000,4]]"),
        op("aten::to", 30, 31, input_dims=values),
    ]


def test_rows_of_the_values_count() -> None:
    events = rank_events(trace(*sparse_update()), 0)
    assert sparse_sums(events, np.arange(4)) == {0: 24, 1: 24}
    costs = whole_op_costs(events, np.array([0]))
    assert (costs.flops[0], costs.bytes[0], costs.family[0]) == (48.0, 24 * (12 + 0.25), "embedding")


def test_a_dense_sum_keeps_its_cost() -> None:
    events = rank_events(trace(op("aten::add_", 0, 100, input_dims=TABLE, input_types=TYPES)), 0)
    costs = whole_op_costs(events, np.array([0]))
    assert (costs.bytes[0], costs.family[0]) == (3 * 4000 * 4.0, "elementwise")


@pytest.mark.parametrize(
    "events",
    [
        sparse_update(None), sparse_update("[[],[],[]]"),  # values that were not recorded
        [op("aten::coalesce", 0, 9), op("aten::_nnz", 2, 3), op("aten::to", 4, 5)],  # rows are requested outside a sum
        sparse_update()[1:],  # a sum that writes a new tensor
    ],
)  # fmt: skip
def test_what_is_no_sparse_sum(events: list[Event]) -> None:
    assert sparse_sums(rank_events(trace(*events), 0), np.arange(len(events))) == {}


def test_half_precision_moves_half() -> None:
    assert sparse_sum_cost(32, "bfloat16") == (64.0, 32 * 6.25)


@pytest.mark.parametrize("wrapper", ["aten::to", "aten::reshape", "aten::contiguous"])
@pytest.mark.parametrize("shapes", [True, False])
def test_a_copy_inside_a_view_never_has_the_views_zero(wrapper: str, shapes: bool) -> None:
    """64 x 32 float32, read and written once; without shapes nothing is known, and the op around knows no better."""
    dims = {"input_dims": "[[64,32],[64,32],[]]", "input_types": '["float","float","Scalar"]'} if shapes else {}
    nodes = graph_of(
        mark(0, 0, 200), op("aten::linear", 2, 90, input_dims="[[64,32],[16,32]]", input_types='["float","float"]'),
        op(wrapper, 5, 40, input_dims="[[64,32],[]]"), op("aten::copy_", 10, 30, **dims),
        call("cudaLaunchKernel", 15, 20, corr=1), kernel("vectorized_elementwise_kernel", 100, 180, corr=1),
    ).nodes  # fmt: skip
    node = nodes[nodes["node_type"] == "compute"].iloc[0]
    assert (node["op_name"], node["family"]) == ("aten::copy_", "copy")
    np.testing.assert_array_equal([node["flops"], node["bytes"]], [0.0, 2.0 * 4 * 64 * 32] if shapes else [np.nan] * 2)


def test_a_kernel_right_inside_a_view_is_unknown() -> None:
    nodes = graph_of(
        mark(0, 0, 200), op("aten::empty", 5, 40, input_dims="[[8],[]]"),
        call("cudaLaunchKernel", 15, 20, corr=1), kernel("k", 100, 180, corr=1),
    ).nodes  # fmt: skip
    node = nodes[nodes["node_type"] == "compute"].iloc[0]
    assert (node["op_name"], node["family"]) == ("aten::empty", "unknown")
    assert np.isnan(node["flops"]) and np.isnan(node["bytes"])


def test_a_copy_of_unknown_size_is_uncovered_by_the_analytical_model() -> None:
    graph = graph_of(
        mark(0, 0, 200), op("aten::to", 5, 40), op("aten::copy_", 10, 30), call("cudaLaunchKernel", 15, 20, corr=1),
        kernel("vectorized_elementwise_kernel", 100, 180, corr=1),
    )  # fmt: skip
    device = load_device("v100_sxm2_32gb")
    prediction = AnalyticPredictor().predict(graph, default_cluster(device))
    assert prediction.uncovered_ops == {"aten::copy_": 1}
