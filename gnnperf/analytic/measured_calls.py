"""Calls whose latency is known, for fitting: of recorded graphs, and of a calibration's op table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from gnnperf.analytic.op_counts import KEYS
from gnnperf.analytic.op_price_fit import CALIBRATED, RECORDED
from gnnperf.errors import InputError
from gnnperf.graph.cost import op_cost
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.sparse_sums import sparse_sum_cost
from gnnperf.schema import NodeType, OpFamily

Shapes = list[Any]
PROFILER_NAMES = {"float32": "float", "float64": "double", "int64": "long int", "bfloat16": "c10::BFloat16"}
SPARSE = "sparse_"
NEEDED = ("op", "kind", "direction", "shapes", "dtypes", "arguments", "tables", "cache", "latency_us")
# What a trace calls the op, where a call from Python is decomposed.
TRACED_AS = {"native_batch_norm": "batch_norm"}
COSTED_AS = {"max_pool2d": "max_pool2d_with_indices"}  # its only child does the work
# Forward op -> the op that its gradient runs, and that op's inputs as a trace records them.
GRADIENTS: Mapping[str, tuple[str, Callable[[Shapes, Mapping[str, Any]], Shapes]]] = {
    "relu": ("threshold_backward", lambda s, a: [s[0], s[0], []]),
    "tanh": ("tanh_backward", lambda s, a: [s[0], s[0]]),
    "sigmoid": ("sigmoid_backward", lambda s, a: [s[0], s[0]]),
    "gelu": ("gelu_backward", lambda s, a: [s[0], s[0], []]),
    "silu": ("silu_backward", lambda s, a: [s[0], s[0]]),
    "softmax": ("_softmax_backward_data", lambda s, a: [s[0], s[0], [], []]),
    "log_softmax": ("_log_softmax_backward_data", lambda s, a: [s[0], s[0], [], []]),
    "layer_norm": (
        "native_layer_norm_backward",
        lambda s, a: [s[0], s[0], [], [s[0][0], 1], [s[0][0], 1], s[1], s[2], []],
    ),
    "native_batch_norm": ("native_batch_norm_backward", lambda s, a: [s[0], s[0], s[1]]),
    "scaled_dot_product_attention": (
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        lambda s, a: [s[0], s[0], s[0], s[0], s[0], s[0][:-1], [], []],
    ),
    "max_pool2d": ("max_pool2d_with_indices_backward", lambda s, a: [_pooled(s[0], a), s[0]]),
    "avg_pool2d": ("avg_pool2d_backward", lambda s, a: [_pooled(s[0], a), s[0]]),
}


def recorded_calls(graphs: Iterable[ExecutionGraph]) -> pd.DataFrame:
    """One row per distinct call on a CPU: KEYS, median latency_us over its calls in whole steps, times, source."""
    parts = [_labeled(graph) for graph in graphs]
    calls = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*KEYS, "latency_us"])
    grouped = calls.groupby(KEYS, dropna=False, observed=True)["latency_us"]
    found = grouped.agg(latency_us="median", times="count").reset_index()
    return found.assign(source=RECORDED)


def _labeled(graph: ExecutionGraph) -> pd.DataFrame:
    nodes = graph.nodes
    here = (nodes["node_type"] == NodeType.COMPUTE) & (nodes["stream"] < 0) & (nodes["step"] >= 0)
    calls = nodes.loc[here & nodes["latency_us"].gt(0), [*KEYS, "latency_us"]]
    texts = ["op_name", "input_dims", "dtype", "family"]
    return calls.astype(dict.fromkeys(texts, object))


def read_calibrated_calls(paths: Iterable[Path]) -> pd.DataFrame | None:
    """`calibrated_calls` of several files that `gnnperf calibrate` wrote; None of no files.

    Raises:
        InputError: a file cannot be read, or is no such table.
    """
    tables = [calibrated_calls(_read(path)) for path in paths]
    return pd.concat(tables, ignore_index=True) if tables else None


def _read(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read ({error})", where=str(path), remedy="name an ops.parquet") from None
    missing = [column for column in NEEDED if column not in table]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing", where=str(path),
                         remedy="name an ops.parquet that `gnnperf calibrate` wrote")  # fmt: skip
    return table


def calibrated_calls(table: pd.DataFrame) -> pd.DataFrame:
    """The same columns from the warm rows of an op table (`gnnperf calibrate`), each call as a trace would record it.

    Left out: gradients whose op is not known here, gradients of tables, and what has no cost formula.
    """
    warm = table[(table["kind"] == "op") & (table["cache"] == "warm") & (table["tables"] == 1)]
    found = [call for row in warm.itertuples() if (call := _call(row)) is not None]
    return pd.DataFrame(found, columns=[*KEYS, "latency_us"]).assign(times=1, source=CALIBRATED)


def _call(row: Any) -> dict[str, object] | None:
    op, shapes, dtypes = row.op.rpartition("::")[2], json.loads(row.shapes), json.loads(row.dtypes)
    arguments = json.loads(row.arguments) if row.arguments else {}
    known = [shape if shape is not None else [] for shape in shapes]
    if dtypes[-1].startswith(SPARSE):
        return _sparse_sum(row, op, known, dtypes)
    values = None
    if row.direction == "backward":
        if op == "conv2d":
            op, dims = "convolution_backward", [_output(known, arguments), known[0], known[1], *[[]] * 8]
        elif op in GRADIENTS:
            op, dims = GRADIENTS[op][0], GRADIENTS[op][1](known, arguments)
        else:
            return None
    else:
        dims, values = _forward(op, known, arguments)
        op = TRACED_AS.get(op, op)
    types = [PROFILER_NAMES.get(dtypes[0], dtypes[0]) if shape else "" for shape in dims]
    if row.direction == "forward" and op in ("embedding", "embedding_bag"):
        types = [PROFILER_NAMES.get(dtype, dtype) for dtype in dtypes]
    text = _compact(dims)
    cost = op_cost(f"aten::{COSTED_AS.get(op, op)}", text, _compact(types), values)
    if cost.family is OpFamily.UNKNOWN or (cost.flops != cost.flops and cost.bytes != cost.bytes):
        return None
    return {"op_name": f"aten::{op}", "input_dims": text, "dtype": dtypes[0], "family": str(cost.family),
            "flops": cost.flops, "bytes": cost.bytes, "latency_us": row.latency_us}  # fmt: skip


def _sparse_sum(row: Any, op: str, shapes: Shapes, dtypes: list[str]) -> dict[str, object]:
    """A sparse gradient added to a table: traces record the table's shape twice."""
    flops, moved = sparse_sum_cost(shapes[1][0] * shapes[1][1], dtypes[0])
    dims = _compact([shapes[0], shapes[0], []])
    return {"op_name": f"aten::{op}", "input_dims": dims, "dtype": dtypes[0], "family": str(OpFamily.EMBEDDING),
            "flops": flops, "bytes": moved, "latency_us": row.latency_us}  # fmt: skip


def _forward(op: str, shapes: Shapes, arguments: Mapping[str, Any]) -> tuple[Shapes, str | None]:
    """Shapes and values as recorded: convolutions and pools need their geometry, the rest their shapes only."""
    if op == "conv2d":
        geometry = ["", "", "", arguments["stride"], arguments["padding"], [1, 1], arguments["groups"]]
        return [*shapes[:2], [], [], [], [], []], _texts(geometry)
    if op in ("max_pool2d", "avg_pool2d"):
        kernel = arguments["kernel_size"]
        return [shapes[0], [], [], [], [], []], _texts(["", kernel, kernel, [0, 0], [1, 1], "False"])
    if op == "cat":
        return [shapes, []], _texts(["", arguments.get("dim", 0)])
    if op in ("sum", "mean", "amax"):
        return [shapes[0], [], [], []], _texts(["", arguments["dim"], "False", ""])
    return shapes, None


def _texts(values: list[Any]) -> str:
    return json.dumps([value if isinstance(value, str) else json.dumps(value) for value in values])


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _output(shapes: Shapes, arguments: Mapping[str, Any]) -> Shapes:
    """Shape of a convolution's result, as torch.nn.Conv2d documents it."""
    image, weight = shapes[0], shapes[1]
    along = zip(image[2:], arguments["padding"], weight[2:], arguments["stride"], strict=True)
    edges = [(n + 2 * p - k) // s + 1 for n, p, k, s in along]
    return [image[0], weight[0], *edges]


def _pooled(image: Shapes, arguments: Mapping[str, Any]) -> Shapes:
    """Shape after a pool without padding whose windows do not overlap."""
    return [*image[:2], *(n // k for n, k in zip(image[2:], arguments["kernel_size"], strict=True))]
