"""What compute nodes are bound by."""

from __future__ import annotations

import numpy as np

from gnnperf.analytic.kernels.nodes import node_bounds
from gnnperf.core.schema import NodeType
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


def test_unknown_work_has_no_bound() -> None:
    graph = _graph(("mine::op", "unknown", np.nan, np.nan))
    assert node_bounds(graph, load_device("v100_sxm2_32gb")).tolist() == [None, None]
    assert node_bounds(graph, load_device("cpu_generic")).tolist() == [None, None]


def test_on_a_cpu_what_is_paid_most_for_decides() -> None:
    graph = _graph(("aten::add", "elementwise", 8.0, 96.0), ("aten::copy_", "copy", 0.0, 4e9))
    assert node_bounds(graph, load_device("cpu_generic")).tolist() == ["launch", "memory", None]
