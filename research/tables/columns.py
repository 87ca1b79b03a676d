"""One form for op tables of others: columns of `calibrate.op_table`, sizes as numbers, and how it was measured."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt
import pandas as pd

from gnnperf.core import InputError
from gnnperf.hardware import DeviceSpec, match_device

US_PER_MS = 1e3
ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "float8_block": 1, "float4": 0.5,
              "int64": 8}  # fmt: skip

TEXT, NUMBER, FLAG = "text", "number", "flag"
# The first group has the names and meanings of gnnperf.record.calibrate.ops_file.COLUMNS. Unknown is None or NaN,
# never 0.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "op": (TEXT, "as in traces (aten::mm), or the table's own name where torch has no such op"),
    "direction": (TEXT, "forward or backward"),
    "shapes": (TEXT, "JSON: one list per tensor argument of the forward op"),
    "dtypes": (TEXT, "JSON: of these tensors"),
    "tf32": (FLAG, "products in float32 may use TF32"),
    "flops": (NUMBER, "floating-point operations of one call; NaN unknown"),
    "moved_bytes": (NUMBER, "bytes read and written at least; NaN unknown"),
    "cache": (TEXT, "warm: the same call came right before; flushed: the last-level cache was overwritten"),
    "launch_included": (FLAG, "true: from before the call until the end of its work; false: the device's own time"),
    "device": (TEXT, "name of the device, as the table gives it; hardware.match_device knows it"),
    "latency_us": (NUMBER, "us: of one call"),
    # Where it is from
    "source": (TEXT, "owner/name of the repository that published it"),
    "table": (TEXT, "the table's own name for the op, e.g. linear3"),
    "method": (TEXT, "how it was measured"),
    "dtype": (TEXT, "of the first floating-point tensor"),
    "turns": (NUMBER, "calls in turn on operands of their own, which compete for the cache; latency is per call"),
    "calls_before": (NUMBER, "sizes that the process had called before, where that lengthens calls; NaN unknown"),
    # Sizes as numbers; NaN where they mean nothing
    "batch": (NUMBER, "GEMM: products in one call; convolution: images"),
    "m": (NUMBER, "GEMM: rows of the result"),
    "n": (NUMBER, "GEMM: columns of the result"),
    "k": (NUMBER, "GEMM: summed length"),
    "rows": (NUMBER, "normalization, softmax, elementwise: all but the last dimension"),
    "columns": (NUMBER, "... and the last dimension"),
    "in_channels": (NUMBER, "convolution"),
    "out_channels": (NUMBER, "convolution"),
    "kernel": (NUMBER, "convolution: edge of the square window"),
    "in_size": (NUMBER, "convolution: edge of the square image"),
    "stride": (NUMBER, "convolution"),
    "padding": (NUMBER, "convolution"),
}


@dataclass(frozen=True)
class OpTable:
    """Measured ops of one or several sources."""

    rows: pd.DataFrame  # one measurement per row, columns as in COLUMNS
    # "source: reason" -> how many measurements were left out for it
    dropped: Mapping[str, int] = field(default_factory=dict)


def completed(parts: Mapping[str, object], num_rows: int) -> pd.DataFrame:
    """Rows with every column of COLUMNS, in their order; what `parts` does not give is unknown (turns: 1)."""
    unknown = set(parts) - set(COLUMNS)
    if unknown:
        raise KeyError(f"no column {sorted(unknown)}")
    given = {"turns": 1.0, **parts}
    return pd.DataFrame({name: _column(given.get(name), kind, num_rows) for name, (kind, _) in COLUMNS.items()})


def _column(values: object, kind: str, num_rows: int) -> pd.Series:
    index = pd.RangeIndex(num_rows)
    if kind == NUMBER:
        return pd.Series(np.nan if values is None else np.asarray(values, float), index, dtype=float)
    if kind == FLAG:
        return pd.Series(bool(values) if np.isscalar(values) or values is None else values, index, dtype=bool)
    return pd.Series(values if np.isscalar(values) or values is None else np.asarray(values, object), index, dtype=str)


def joined(tables: Iterable[OpTable]) -> OpTable:
    """All rows of several tables, renumbered; counts of what was left out are added."""
    result = list(tables)
    rows = [table.rows for table in result] or [completed({}, 0)]
    return OpTable(pd.concat(rows, ignore_index=True), added_counts(table.dropped for table in result))


def added_counts(dropped: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Reason -> what all tables left out for it."""
    result: Counter[str] = Counter()
    for counts in dropped:
        result.update(counts)
    return dict(result)


def spec_of(name: str) -> DeviceSpec:
    """The catalog's device of a table's name."""
    result = match_device(name)
    if result is None:
        raise InputError(f"device {name!r}", where="op table", remedy="add it to conf/hardware")
    return result


def grouped(rows: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Values of the columns `by` as text, and the positions [k] of the rows that have them; sorted by values."""
    keys = rows[list(by)].astype(object).reset_index(drop=True)
    for values, part in keys.groupby(list(by), sort=True):
        yield tuple(str(value) for value in values), np.array(part.index)


def shapes_json(tensors: Sequence[Sequence[npt.ArrayLike]]) -> npt.NDArray[np.object_]:
    """One JSON text per row, as `json.dumps` would write it."""
    dims = [[np.atleast_1d(np.asarray(dim)).astype(np.int64) for dim in tensor] for tensor in tensors]
    num_rows = max((len(dim) for tensor in dims for dim in tensor), default=1)
    none = np.full(num_rows, "[]", object)
    texts = ["[" + _separated([_numbers(dim, num_rows) for dim in tensor]) + "]" if tensor else none for tensor in dims]
    return "[" + _separated(texts) + "]"


def dtypes_json(dtypes: Sequence[str]) -> str:
    """The dtypes of one row's tensors as JSON."""
    return json.dumps(list(dtypes))


def _separated(texts: Sequence[npt.NDArray[np.object_]]) -> npt.NDArray[np.object_]:
    return reduce(lambda before, text: before + ", " + text, texts)


def _numbers(values: npt.NDArray[np.int64], num_rows: int) -> npt.NDArray[np.object_]:
    """Each distinct number is written once: tables repeat few sizes often."""
    distinct, place = np.unique(values, return_inverse=True)
    written = np.array([str(v) for v in distinct.tolist()], object)
    return np.broadcast_to(written[place], (num_rows,))


def product_columns(
    op: str, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, dtype: str, batch: npt.ArrayLike = 1
) -> dict[str, object]:
    """Columns of [batch] x [m, k] x [k, n].

    FLOPs: 2 batch m n k; bytes: each operand once, the result once (Williams, Waterman, Patterson 2009: compulsory
    traffic).
    """
    sizes = [np.asarray(size, float) for size in (batch, m, n, k)]
    b, rows, columns, depth = np.broadcast_arrays(*sizes)  # [rows]
    left, right = [rows, depth], [columns, depth] if op == "aten::linear" else [depth, columns]
    if op in ("aten::bmm", "aten::baddbmm"):
        left, right = [b, *left], [b, *right]
    moved = b * (rows * depth + depth * columns + rows * columns) * ITEM_BYTES[dtype]
    return {
        "op": op, "batch": b, "m": rows, "n": columns, "k": depth, "dtype": dtype,
        "shapes": shapes_json([left, right]), "dtypes": dtypes_json([dtype, dtype]),
        "flops": 2.0 * b * rows * columns * depth, "moved_bytes": moved,
    }  # fmt: skip


CONVOLUTION = "aten::conv2d"


def convolution_columns(size: Mapping[str, np.ndarray], dtype: str) -> dict[str, object]:
    """Columns of convolutions: square images, square windows, NCHW, one group.

    out = floor((in + 2 padding - kernel) / stride) + 1 (torch.nn.Conv2d).
    """
    window = size["kernel"]
    out_size = np.floor((size["in_size"] + 2 * size["padding"] - window) / size["stride"]) + 1  # [n]
    image = [size["batch"], size["in_channels"], size["in_size"], size["in_size"]]
    weight = [size["out_channels"], size["in_channels"], window, window]
    result = size["batch"] * size["out_channels"] * out_size**2  # [n] elements
    elements = np.prod(image, axis=0) + np.prod(weight, axis=0) + result  # [n]
    return {
        **size, "op": CONVOLUTION, "dtype": dtype, "shapes": shapes_json([image, weight]),
        "dtypes": dtypes_json([dtype, dtype]),
        "flops": 2.0 * result * size["in_channels"] * window**2, "moved_bytes": elements * ITEM_BYTES[dtype],
    }  # fmt: skip
