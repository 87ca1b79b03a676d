"""Calls whose latency is known, for fitting: of recorded graphs, and of a calibration's op table."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic.cpu.counts import AT_ONCE, KEYS, between_bytes
from gnnperf.analytic.cpu.fit import CALIBRATED, RECORDED
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.op_tables.gradients import gradient_calls
from gnnperf.analytic.op_tables.read_tables import OP, OpRow, read_op_rows
from gnnperf.analytic.op_tables.signatures import recorded_call
from gnnperf.core import InputError, NodeType, OpFamily
from gnnperf.graph import ExecutionGraph, UnknownCost, sparse_sum_cost

SPARSE = "sparse_"
LABELS = ("latency_us", "opened_ops")
NEEDED = ("tables", "cache")
WARM, FLUSHED = "warm", "flushed"
BETWEEN_BYTES = {WARM: AT_ONCE, FLUSHED: 2.0**30}  # a flush moves more than any cache holds
# What traces of CPUs call the op that the call of an op table runs.
ON_CPU: Mapping[str, str] = {
    "aten::native_batch_norm": "aten::batch_norm",
    "aten::native_dropout": "aten::dropout",
    "aten::_scaled_dot_product_flash_attention_backward": "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
}


def recorded_calls(graphs: Iterable[ExecutionGraph]) -> pd.DataFrame:
    """One row per distinct call on a CPU: KEYS, mean latency_us over its calls in whole steps, times, source.

    The mean, because steps are sums: a median leaves out what interrupts an op now and then. Calls are alike if what
    was moved between them is, to a factor of two.

    Left out: calls that open ops, of ops that elsewhere open none. A subclass of tensors passed them on in Python
    (DTensor: 30 us where the op takes 2), or an argument was converted first.
    """
    parts = [_labeled(graph) for graph in graphs]
    result = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*KEYS, *LABELS])
    calls = result[result["opened_ops"].eq(0) | result.groupby("op_name")["opened_ops"].transform("min").gt(0)]
    grouped = calls.groupby(KEYS, dropna=False, observed=True)["latency_us"]
    return grouped.agg(latency_us="mean", times="count").reset_index().assign(source=RECORDED)


def _labeled(graph: ExecutionGraph) -> pd.DataFrame:
    nodes = graph.nodes
    ops = nodes[((nodes["node_type"] == NodeType.COMPUTE) & (nodes["stream"] < 0)).to_numpy()]
    between = np.exp2(np.round(np.log2(np.maximum(between_bytes(ops), 1.0))))
    timed = (ops["step"].ge(0) & ops["latency_us"].gt(0)).to_numpy()
    calls = ops.assign(between_bytes=between).loc[timed, [*KEYS, *LABELS]]
    texts = ["op_name", "input_dims", "dtype", "family"]
    return calls.astype(dict.fromkeys(texts, object))


def read_calibrated_calls(paths: Iterable[Path]) -> pd.DataFrame | None:
    """Calls of several op tables (`gnnperf calibrate`), each as a trace would record it; None of no files.

    The columns are those of `recorded_calls`. Warm rows, and of look-ups the flushed ones, too: between two uses of a
    table a program moves all the rest of a step. Left out: gradients of tables and those that are no single op,
    several tables in turn, and what has no cost.

    Raises:
        InputError: a file cannot be read, or is no such table.
    """
    tables = [_calibrated_calls(path) for path in paths]
    return pd.concat(tables, ignore_index=True) if tables else None


def _calibrated_calls(path: Path) -> pd.DataFrame:
    table, rows = read_op_rows(path)
    missing = [column for column in NEEDED if column not in table]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing", where=str(path),
                         remedy="name an ops.parquet that `gnnperf calibrate` wrote")  # fmt: skip
    states = table["cache"].where(table["tables"] == 1, "")
    result = [(call, row.measured_us, BETWEEN_BYTES[state]) for row, state in zip(rows, states, strict=True)
             if row.kind == OP and (call := _traced(row)) is not None
             and (state == WARM or (state == FLUSHED and call.family == OpFamily.EMBEDDING))]  # fmt: skip
    columns = {
        "op_name": [ON_CPU.get(call.op_name, call.op_name) for call, *_ in result],
        "input_dims": [call.input_dims and json.dumps(json.loads(call.input_dims), separators=(",", ":"))
                       for call, *_ in result],
        "dtype": [call.dtype for call, *_ in result], "family": [str(call.family) for call, *_ in result],
        "flops": np.array([call.flops for call, *_ in result], float),
        "bytes": np.array([call.moved_bytes for call, *_ in result], float),
        "between_bytes": np.array([between for *_, between in result], float),
        "latency_us": np.array([us for _, us, _ in result], float),
    }  # fmt: skip
    device = str(table["device"].iloc[0]) if "device" in table else ""
    return pd.DataFrame(columns)[[*KEYS, "latency_us"]].assign(times=1, source=CALIBRATED, device=device)


def _traced(row: OpRow) -> KernelCall | None:
    """The call of a row; None where it is not one call, or its cost is not known."""
    if row.dtypes[-1].startswith(SPARSE):
        return _sparse_sum(row)
    try:
        calls = gradient_calls(row) if row.direction == "backward" else [recorded_call(row)]
    except (UnknownCost, IndexError):  # no formula for the gradient, or shapes that do not determine it
        return None
    known = len(calls) == 1 and calls[0].family not in (OpFamily.UNKNOWN, OpFamily.VIEW)
    known &= row.direction == "forward" or calls[0].family != OpFamily.EMBEDDING  # they allocate the gradient anew
    return calls[0] if known and not (np.isnan(calls[0].flops) and np.isnan(calls[0].moved_bytes)) else None


def _sparse_sum(row: OpRow) -> KernelCall:
    """A sparse gradient added to a table: traces record the table's shape twice."""
    table, values = row.shapes[0], row.shapes[1]
    assert table is not None and values is not None, "calibrate measures such sums with both shapes"
    flops, moved = sparse_sum_cost(values[0] * values[1], row.dtypes[0])
    dims = json.dumps([list(table), list(table), []])
    return KernelCall(row.op, dims, row.dtypes[0], str(OpFamily.EMBEDDING), flops, moved)
