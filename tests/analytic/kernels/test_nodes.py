"""What compute nodes are bound by."""

import numpy as np
import pytest

from gnnperf.analytic.kernels.call import Bound, KernelCall
from gnnperf.analytic.kernels.nodes import node_bounds, op_times
from gnnperf.analytic.op_tables.gradients import gradient_calls
from gnnperf.analytic.op_tables.read_tables import OpRow
from gnnperf.core import NodeType
from gnnperf.graph.cost.op_call import UnknownCost
from gnnperf.hardware import load_device
from tests.toys import make_graph


def _graph(*rows: tuple[str, str, float, float]):  # type: ignore[no-untyped-def]
    """(op, family, FLOPs, bytes) of kernels, and a host node."""
    kernels = [{"node_type": NodeType.COMPUTE, "stream": 0, "op_name": op, "family": family, "dtype": "float32",
                "flops": flops, "bytes": moved} for op, family, flops, moved in rows]  # fmt: skip
    return make_graph([*kernels, {"node_type": NodeType.HOST, "thread": 0}], [])


def test_on_a_gpu_the_largest_of_three_decides() -> None:
    """V100: 15.7 TFLOP/s and 900 GB/s: 1e12 FLOPs take 64 ms, 1e9 bytes 1.1 ms; a few of each are all launch."""
    graph = _graph(
        ("aten::mm", "gemm", 1e12, 1e9), ("aten::add", "elementwise", 1e6, 1e9), ("aten::add", "elementwise", 8.0, 96.0)
    )
    assert node_bounds(graph, load_device("v100_sxm2_32gb")).tolist() == ["compute", "memory", "launch", None]


CPU = load_device("cpu_generic")


def test_on_a_cpu_what_is_paid_most_for_decides_and_unknown_work_has_no_bound() -> None:
    rows = (
        ("aten::add", "elementwise", 8.0, 96.0),
        ("aten::copy_", "copy", 0.0, 4e9),
        ("me::op", "unknown", np.nan, np.nan),
    )
    assert node_bounds(_graph(*rows), CPU).tolist() == ["launch", "memory", None, None]
    assert node_bounds(_graph(rows[-1]), load_device("v100_sxm2_32gb")).tolist() == [None, None]


def relu(elements: int) -> KernelCall:
    return KernelCall("aten::relu", f"[[{elements}]]", "float32", "elementwise", float(elements), 8.0 * elements)


def product(edge: int) -> KernelCall:
    dims = f"[[{edge},{edge}],[{edge},{edge}]]"
    return KernelCall("aten::mm", dims, "float32", "gemm", 2.0 * edge**3, 12.0 * edge**2)


def test_small_calls_are_bound_by_the_call_streams_by_memory_products_by_arithmetic() -> None:
    result = op_times([relu(8), relu(1 << 22), product(1024)], CPU)
    assert result.bound.tolist() == [Bound.LAUNCH, Bound.MEMORY, Bound.COMPUTE]
    assert (np.diff(result.latency_us) > 0).all()


def test_what_has_no_cost_has_no_prediction() -> None:
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
