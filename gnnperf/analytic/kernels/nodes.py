"""Compute nodes of a graph: each distinct op call is requested once, its kernels share the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gnnperf.analytic.embedding.counted_tables import with_counts
from gnnperf.analytic.kernels.call import Array, KernelCall
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.graph import TableCounts
from gnnperf.hardware import DeviceSpec

TEXTS = ("op_name", "input_dims", "dtype", "family")


def compute_nodes_us(
    nodes: pd.DataFrame, device: DeviceSpec, roofline_power: float, tables: Sequence[TableCounts] = ()
) -> Array:
    """[n] us of compute nodes (schema.NODE_COLUMNS); NaN where neither FLOPs nor bytes are known.

    A node holds its share of the op call's FLOPs and bytes, so the call is the node times its siblings, and the node's
    latency is its share of the call's. `tables` are the counts of embedding tables that the run's card holds.
    """
    calls, code = distinct_calls(nodes)
    latency = kernel_times(with_counts(calls, tables), device, roofline_power).latency_us  # [num_calls]
    return latency[code] / _siblings(nodes)


def distinct_calls(nodes: pd.DataFrame) -> tuple[list[KernelCall], np.ndarray]:
    """The op calls behind compute nodes, each once, and [n] which of them a node belongs to."""
    siblings = _siblings(nodes)  # [n]
    works = [nodes[name].to_numpy(float) * siblings for name in ("flops", "bytes")]
    coded = [pd.factorize(nodes[name].astype(object), use_na_sentinel=True) for name in TEXTS]
    numbered = [pd.factorize(values, use_na_sentinel=True)[0] for values in (*works, siblings)]
    keys = np.stack([*(codes for codes, _ in coded), *numbered])  # [keys, n]
    _, first, code = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    calls = []
    for row in first.tolist():
        op, dims, dtype, family = (None if c[row] < 0 else str(names[c[row]]) for c, names in coded)
        calls.append(KernelCall(op or "", dims, dtype, family or "", works[0][row], works[1][row], int(siblings[row])))
    return calls, code.ravel()


def _siblings(nodes: pd.DataFrame) -> Array:
    return np.maximum(nodes["num_siblings"].to_numpy(float), 1.0)
