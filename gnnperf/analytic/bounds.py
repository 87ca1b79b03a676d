"""What the time of each compute node is made of most: arithmetic, memory traffic or launches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnperf.analytic.constants import default_constants
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.dispatch import bounds, roofline_us
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.analytic.op_tables.cpu import op_times
from gnnperf.core.schema import NodeType
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.spec import DeviceSpec


def node_bounds(graph: ExecutionGraph, device: DeviceSpec) -> np.ndarray:
    """[num_nodes] Bound of compute nodes on `device`, told per call; None elsewhere and where work is unknown."""
    compute = (graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()  # [num_nodes]
    found = np.full(graph.num_nodes, None, dtype=object)
    if compute.any():
        calls, code = distinct_calls(graph.nodes[compute])
        found[compute] = _call_bounds(calls, device)[code]
    return found


def _call_bounds(calls: Sequence[KernelCall], device: DeviceSpec) -> np.ndarray:
    """[num_calls] as `gnnperf ops predict` tells them."""
    if device.kind == "cpu":
        return op_times(calls, device).bound
    return bounds(calls, device, roofline_us(calls, device, default_constants(device.kind).roofline_power))
