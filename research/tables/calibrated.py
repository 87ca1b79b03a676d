"""Ops of the user's own table (`gnnperf calibrate`), in the form of published ones: its columns, sizes as numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from gnnperf.analytic.collective.tables import rows_of_kind
from research.tables.columns import OpTable, completed
from research.tables.keep import UNMEASURED

SOURCE, METHOD = "gnnperf calibrate", "medians of rounds, each a process of its own"
SHARED = ("op", "direction", "shapes", "dtypes", "tf32", "flops", "moved_bytes", "cache", "launch_included", "device",
          "latency_us")  # fmt: skip
NEEDED = (*SHARED, "kind", "tables")
OP = "op"
SIZES = ("batch", "m", "n", "k")
Shape = list[int]
Size = tuple[float, float, float, float]
UNKNOWN: Size = (np.nan, np.nan, np.nan, np.nan)


def read_calibrated_ops(path: Path) -> OpTable:
    """The ops of an ops.parquet; collectives and host costs are left to their own readers.

    Raises:
        InputError: not such a file.
    """
    rows = rows_of_kind(path, OP, NEEDED)
    sizes = np.array([size_of(op, shapes) for op, shapes in zip(rows["op"], rows["shapes"], strict=True)], float)
    given = {name: rows[name].to_numpy() for name in SHARED} | dict(zip(SIZES, sizes.reshape(-1, 4).T, strict=True))
    dtype = [first_float(dtypes) for dtypes in rows["dtypes"]]
    whole = completed({**given, "dtype": dtype, "turns": rows["tables"].to_numpy(), "source": SOURCE,
                       "table": rows["op"].to_numpy(), "method": METHOD}, len(rows))  # fmt: skip
    timed = whole["latency_us"] > 0  # each point and way of measuring is in the file once
    left_out = {f"{SOURCE}: {UNMEASURED}": int((~timed).sum())} if (~timed).any() else {}
    return OpTable(whole[timed].reset_index(drop=True), left_out)


def size_of(op: str, shapes: str) -> Size:
    """Batch, m, n and k of a dense product; NaN: another op, or shapes that do not belong together."""
    operands = PRODUCTS.get(op)
    if operands is None:
        return UNKNOWN
    tensors = [shape for shape in json.loads(shapes) if shape is not None]
    try:
        return operands(tensors)
    except (IndexError, ValueError):
        return UNKNOWN


def first_float(dtypes: str) -> str:
    """Of the first floating-point tensor, else of the first; "" of none."""
    named = [dtype for dtype in json.loads(dtypes) if dtype is not None]
    return next((dtype for dtype in named if "float" in dtype), named[0] if named else "")


def _product(left: Shape, right: Shape) -> Size:
    *batch, m, k = left
    if k != right[-2]:
        raise ValueError("the summed lengths differ")
    return float(np.prod(batch)), float(m), float(right[-1]), float(k)


def _linear(x: Shape, weight: Shape) -> Size:
    return _product([int(np.prod(x[:-1])), x[-1]], weight[::-1])


PRODUCTS: Mapping[str, Callable[[list[Shape]], Size]] = {
    "aten::mm": lambda t: _product(t[0], t[1]),
    "aten::bmm": lambda t: _product(t[0], t[1]),
    "aten::addmm": lambda t: _product(t[1], t[2]),
    "aten::baddbmm": lambda t: _product(t[1], t[2]),
    "aten::linear": lambda t: _linear(t[0], t[1]),
}
