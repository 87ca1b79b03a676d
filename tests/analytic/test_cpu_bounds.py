"""Op tables requested a CPU: prices answer, and the largest part of a price is what bounds a call."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.analytic.kernels.call import Bound, KernelCall
from gnnperf.analytic.kernels.nodes import op_times
from gnnperf.analytic.op_tables.decomposition import gradient_calls
from gnnperf.analytic.op_tables.read import OpRow
from gnnperf.graph.cost.op_call import UnknownCost
from gnnperf.hardware import load_device

CPU = load_device("cpu_generic")


def relu(elements: int) -> KernelCall:
    return KernelCall("aten::relu", f"[[{elements}]]", "float32", "elementwise", float(elements), 8.0 * elements)


def product(edge: int) -> KernelCall:
    dims = f"[[{edge},{edge}],[{edge},{edge}]]"
    return KernelCall("aten::mm", dims, "float32", "gemm", 2.0 * edge**3, 12.0 * edge**2)


def test_small_calls_are_bound_by_the_call_streams_by_memory_products_by_arithmetic() -> None:
    result = op_times([relu(8), relu(1 << 22), product(1024)], CPU)
    assert result.bound.tolist() == [Bound.LAUNCH, Bound.MEMORY, Bound.COMPUTE]
    assert (np.diff(result.latency_us) > 0).all()


def test_what_has_no_cost_has_no_answer() -> None:
    result = op_times([KernelCall("my::op", None, None, "unknown", float("nan"), float("nan"))], CPU)
    assert np.isnan(result.latency_us[0]) and result.bound[0] is None


def test_the_gradient_of_a_pool_has_the_shape_of_its_result() -> None:
    row = OpRow("aten::avg_pool2d", ((1, 2, 9, 6),), ("float32",), {"kernel_size": [3, 2], "padding": [0, 1]})
    (call,) = gradient_calls(row)
    assert (call.op_name, call.input_dims) == ("aten::avg_pool2d_backward", "[[1, 2, 3, 4], [1, 2, 9, 6]]")
    with pytest.raises(UnknownCost):
        gradient_calls(OpRow("aten::avg_pool2d", ((1, 2, 9, 6),), ("float32",), {"kernel_size": 3}))


def test_a_sparse_gradient_of_a_bag_leaves_the_table_isolated() -> None:
    shapes = ((1_000_000, 4), (6,), (3,))
    dense, sparse = (
        gradient_calls(OpRow("aten::embedding_bag", shapes, ("float32", "int64", "int64"), {"sparse": s}))[0]
        for s in (False, True)
    )
    assert dense.moved_bytes > 1e6 > sparse.moved_bytes
    assert sparse.moved_bytes == 6 * 8 + 3 * 4 * 4 + 6 * 4 * 4  # indices, gradient of bags, values
