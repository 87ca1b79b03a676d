"""Compute nodes of a graph: latency and bound. Distinct op calls are predicted once; kernels share the latency."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gnnperf.analytic.constants import default_constants
from gnnperf.analytic.cpu.counts import ARITHMETIC, AT_ONCE, CALLS, COUNTS, KEYS, TRAFFIC
from gnnperf.analytic.embedding.calls import with_counts
from gnnperf.analytic.kernels.call import Array, Bound, KernelCall, KernelTimes
from gnnperf.analytic.kernels.dispatch import bounds, has_forms, kernel_times, roofline_us
from gnnperf.analytic.kernels.launched import launched_us
from gnnperf.analytic.kernels.launched_gemms import launched_sizes
from gnnperf.core import NodeType, OpFamily
from gnnperf.graph import ExecutionGraph, TableCounts, combined
from gnnperf.hardware import DeviceSpec

TEXTS = ("op_name", "input_dims", "dtype", "family")


def compute_nodes_us(
    nodes: pd.DataFrame, device: DeviceSpec, roofline_power: float, tables: Sequence[TableCounts] = ()
) -> Array:
    """[n] us of compute nodes (schema.NODE_COLUMNS); NaN where neither FLOPs nor bytes nor the launch are known.

    A node holds its share of the op call's FLOPs and bytes, so the call is the node times its siblings, and the node's
    latency is its share of the call's. `tables` are the counts of embedding tables that the run's card holds.
    """
    calls, code = distinct_calls(nodes)
    latency = kernel_times(with_counts(calls, tables), device, roofline_power).latency_us  # [num_calls]
    result = latency[code] / _siblings(nodes)  # [n]
    unknown = np.isnan(result)
    if unknown.any() and has_forms(device):
        sizes = launched_sizes(nodes)
        operands = {row: float(each.rows * each.summed * each.batch) for row, each in sizes.items()}
        result[unknown] = launched_us(nodes, operands, device)[unknown]
        products = {row: _product(*each) for row, each in sizes.items() if unknown[row]}
        if products:
            result[list(products)] = kernel_times([*products.values()], device, roofline_power).latency_us
    return result


def _product(m: int, n: int, k: int, batch: int) -> KernelCall:
    moved_bytes = 4.0 * batch * (m * n + m * k + k * n)
    shapes = f"[[{batch},{m},{k}],[{batch},{k},{n}]]" if batch > 1 else f"[[{m},{k}],[{k},{n}]]"
    op_name, flops = "aten::bmm" if batch > 1 else "aten::mm", 2.0 * batch * m * n * k
    return KernelCall(op_name, shapes, "float32", OpFamily.GEMM, flops, moved_bytes, 1)


def distinct_calls(nodes: pd.DataFrame) -> tuple[list[KernelCall], np.ndarray]:
    """The op calls behind compute nodes, each once, and [n] which of them a node belongs to."""
    siblings = _siblings(nodes)  # [n]
    works = [nodes[name].to_numpy(float) * siblings for name in ("flops", "bytes")]
    coded = [(codes, list(map(str, names))) for codes, names in (pd.factorize(nodes[name]) for name in TEXTS)]
    numbered = [pd.factorize(values)[0] for values in (*works, siblings)]
    keys = combined([*(codes for codes, _ in coded), *numbered])  # [n]
    _, first, code = np.unique(keys, return_index=True, return_inverse=True)
    calls = []
    for row in first.tolist():
        op, dims, dtype, family = (None if c[row] < 0 else names[c[row]] for c, names in coded)
        calls.append(KernelCall(op or "", dims, dtype, family or "", works[0][row], works[1][row], int(siblings[row])))
    return calls, code


def _siblings(nodes: pd.DataFrame) -> Array:
    return np.maximum(nodes["num_siblings"].to_numpy(float), 1.0)


PAID_FOR: Mapping[Bound, tuple[str, ...]] = {Bound.LAUNCH: CALLS, Bound.MEMORY: TRAFFIC, Bound.COMPUTE: ARITHMETIC}


def node_bounds(graph: ExecutionGraph, device: DeviceSpec) -> np.ndarray:
    """[num_nodes] Bound of compute nodes on `device`, given per call; None elsewhere and where work is unknown."""
    compute = (graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()  # [num_nodes]
    result = np.full(graph.num_nodes, None, dtype=object)
    if compute.any():
        calls, code = distinct_calls(graph.nodes[compute])
        if device.kind == "cpu":
            result[compute] = op_times(calls, device).bound[code]
        else:
            roofline = roofline_us(calls, device, default_constants(device.kind).roofline_power)
            result[compute] = bounds(calls, device, roofline)[code]
    return result


def op_times(calls: Sequence[KernelCall], device: DeviceSpec) -> KernelTimes:
    """Latencies of calls on one CPU; NaN and no bound where neither FLOPs nor bytes are known."""
    coefficients = default_constants("cpu").op_prices
    assert coefficients is not None, "conf/analytic/cpu.yaml holds prices"
    rows = [(c.op_name, c.input_dims, c.dtype, str(c.family), c.flops, c.moved_bytes, AT_ONCE) for c in calls]
    terms = coefficients.terms_us(pd.DataFrame(rows, columns=KEYS), device)  # [n, num_counts]
    latency = terms.sum(axis=1)  # [n] us
    sums = [terms[:, [COUNTS.index(name) for name in names]].sum(axis=1) for names in PAID_FOR.values()]
    bound = np.array(list(PAID_FOR), dtype=object)[np.argmax(np.nan_to_num(np.stack(sums)), axis=0)]  # [n]
    bound[np.isnan(latency)] = None
    return KernelTimes(latency, bound, ~np.isnan(latency))
