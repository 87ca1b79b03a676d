"""What the time of each compute node is made of most: arithmetic, memory traffic or launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gnnperf.analytic.constants import default_constants
from gnnperf.analytic.cpu.counts import ARITHMETIC, AT_ONCE, CALLS, COUNTS, KEYS, TRAFFIC
from gnnperf.analytic.kernels.call import Bound, KernelCall, KernelTimes
from gnnperf.analytic.kernels.dispatch import bounds, roofline_us
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import DeviceSpec

PAID_FOR: Mapping[Bound, tuple[str, ...]] = {Bound.LAUNCH: CALLS, Bound.MEMORY: TRAFFIC, Bound.COMPUTE: ARITHMETIC}


def node_bounds(graph: ExecutionGraph, device: DeviceSpec) -> np.ndarray:
    """[num_nodes] Bound of compute nodes on `device`, given per call; None elsewhere and where work is unknown."""
    compute = (graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()  # [num_nodes]
    result = np.full(graph.num_nodes, None, dtype=object)
    if compute.any():
        calls, code = distinct_calls(graph.nodes[compute])
        result[compute] = _call_bounds(calls, device)[code]
    return result


def _call_bounds(calls: Sequence[KernelCall], device: DeviceSpec) -> np.ndarray:
    """[num_calls] as `gnnperf ops predict` tells them."""
    if device.kind == "cpu":
        return op_times(calls, device).bound
    return bounds(calls, device, roofline_us(calls, device, default_constants(device.kind).roofline_power))


def op_times(calls: Sequence[KernelCall], device: DeviceSpec) -> KernelTimes:
    """Latencies of calls on one CPU; NaN and no bound where neither FLOPs nor bytes are known.

    Args:
        calls: [n].
        device: a CPU.
    """
    coefficients = default_constants("cpu").op_prices
    assert coefficients is not None, "conf/analytic/cpu.yaml holds prices"
    rows = [(c.op_name, c.input_dims, c.dtype, str(c.family), c.flops, c.moved_bytes, AT_ONCE) for c in calls]
    terms = coefficients.terms_us(pd.DataFrame(rows, columns=KEYS), device)  # [n, num_counts]
    latency = terms.sum(axis=1)  # [n] us
    sums = [terms[:, [COUNTS.index(name) for name in names]].sum(axis=1) for names in PAID_FOR.values()]
    bound = np.array(list(PAID_FOR), dtype=object)[np.argmax(np.nan_to_num(np.stack(sums)), axis=0)]  # [n]
    bound[np.isnan(latency)] = None
    return KernelTimes(latency, bound, ~np.isnan(latency))
