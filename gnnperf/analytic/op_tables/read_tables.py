"""Op tables as rows: the Parquet of `gnnperf calibrate`, CSV, or JSON lines as `gnnperf calibrate --ops` reads them."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic.embedding.calls import counted_access
from gnnperf.analytic.embedding.model import Access, zipf_access
from gnnperf.analytic.kernels.call import LookupAccess
from gnnperf.core import InputError, reading
from gnnperf.graph import lookups_held

# Columns of an op table for embedding lookups, and for products in turn.
# {"op": "aten::embedding_bag", "shapes": [[1000000, 64], [65536], [2048]], "dtypes": ["float32", "int64", "int64"],
#  "reuse_histogram": [41000, 5200, 1900, 700, 220, 40], "cache": "warm", "tables": 8}
#
# One of three sets which rows: `skew` (row = floor(rows u^skew)), `zipf` (the i-th hottest row in proportion to
# i^-zipf: Breslau et al. 1999) or `reuse_histogram` (rows that this call requests once, twice, 3 to 4, 5 to 8, ...
# times, as a recorder's card counts them). Without: uniform. `tables` as large are looked up in turn; `cache` is warm,
# or flushed as without.
#
# Products have `tables` and `cache`, too: so many in turn on operands of their own (published tables: 6, warm), or
# nothing of them in the cache. Without, as in programs.

Shapes = tuple[tuple[int, ...] | None, ...]

LOOKUPS = ("aten::embedding", "aten::embedding_bag", "aten::_embedding_bag", "aten::_embedding_bag_forward_only")
LISTS = ("reuse_histogram",)  # JSON text in Parquet and CSV
COUNTED = ("zipf", *LISTS)
COLUMNS = ("skew", *COUNTED, "tables", "cache")
CACHES = ("warm", "flushed")
FLUSHED_TURNS = 1e6  # as many products in turn leave nothing in a cache
ROUNDING = 1e-6  # of counts that were means


def read_access(entry: Mapping[Any, Any], op: str, shapes: Shapes, where: str) -> LookupAccess:
    """Of one row.

    Raises InputError: another op has counts, two columns say which rows, or a value is out of range. Of other ops,
    `skew`, `tables` and `cache` are ignored: `gnnperf calibrate` writes them in every row.
    """
    given = [name for name in COUNTED if entry.get(name) is not None]
    if op not in LOOKUPS:
        if given:
            raise InputError(f"{given[0]} of {op}", where=where, allowed=", ".join(LOOKUPS))
        return LookupAccess()
    if len(given) > 1 or (given and entry.get("skew") not in (None, 1.0)):
        both = given if len(given) > 1 else [*given, "skew"]
        raise InputError(f"{both[0]} and {both[1]}", where=where, allowed="one column that names the rows")
    counted = _READ[given[0]](entry[given[0]], *_sizes(op, shapes, where), where) if given else None
    skew, tables = (_above_zero(entry.get(name), name, where) for name in ("skew", "tables"))
    return LookupAccess(counted, skew, tables, _cache(entry, where) == CACHES[0])


def read_turns(entry: Mapping[Any, Any], where: str) -> float | None:
    """Products in turn on operands of their own, by `tables` and `cache`; None: the row has neither.

    Raises InputError: a value is out of range.
    """
    tables, cache = entry.get("tables"), _cache(entry, where)
    if cache == CACHES[1]:
        return FLUSHED_TURNS
    return None if tables is None and cache is None else _above_zero(tables, "tables", where)


def _cache(entry: Mapping[Any, Any], where: str) -> object:
    cache = entry.get("cache")
    if cache is not None and cache not in CACHES:
        raise InputError(f"cache is {cache!r}", where=where, allowed=", ".join(CACHES))
    return cache


def _sizes(op: str, shapes: Shapes, where: str) -> tuple[float, float]:
    table, indices = (shapes[index] if index < len(shapes) else None for index in range(2))
    if not table or not indices or not prod(table) or not prod(indices):
        what = f"shapes of {op} name no table and indices"
        raise InputError(what, where=where, allowed="[[rows, columns], [n], ...]")
    return float(table[0]), float(prod(indices))


def _zipf(result: object, rows: float, lookups: float, where: str) -> Access:
    exponent = _number(result)
    if exponent is None or exponent < 0:
        raise InputError(f"zipf is {result!r}", where=where, allowed="an exponent from 0 (uniform) up")
    return zipf_access(np.array([rows]), np.array([exponent]))


def _histogram(result: object, rows: float, lookups: float, where: str) -> Access:
    counts = [_number(n) for n in result] if isinstance(result, list) else []
    if not counts or any(n is None or n < 0 for n in counts) or not any(counts):
        raise InputError(f"reuse_histogram is {result!r}", where=where,
                         allowed="numbers of rows requested once, twice, 3 to 4, ... times, not all 0")  # fmt: skip
    histogram = np.array(counts, float)
    least, most = lookups_held(histogram.tolist())
    if not least * (1 - ROUNDING) <= lookups <= most * (1 + ROUNDING) or histogram.sum() > rows * (1 + ROUNDING):
        raise InputError(
            f"reuse_histogram holds {histogram.sum():g} rows and {least:g} to {most:g} lookups", where=where,
            allowed=f"of {lookups:g} indices into {rows:g} rows", remedy="count the indices of one call, or give means",
        )  # fmt: skip
    return counted_access(rows, histogram, lookups)


_READ: Mapping[str, Callable[[object, float, float, str], Access]] = {"zipf": _zipf, "reuse_histogram": _histogram}


def _above_zero(result: object, name: str, where: str) -> float:
    value = 1.0 if result is None else _number(result)
    if value is None or value <= 0:
        raise InputError(f"{name} is {result!r}", where=where, allowed="a number above 0; 1 without")
    return value


def _number(result: object) -> float | None:
    good = isinstance(result, (int, float)) and not isinstance(result, bool) and math.isfinite(result)
    return float(result) if good else None  # type: ignore[arg-type]  # a number, as just seen


DIRECTIONS = ("forward", "backward")
SUFFIXES = (".parquet", ".csv", ".jsonl", ".json")
NEEDED = ("op", "shapes")
KNOWN = ", ".join(("op, shapes, dtype or dtypes, arguments, direction", *COLUMNS, "those of calibrate"))
OP = "op"
MEASURED = "measured_latency_us"  # the name in a predicted table, whose latency_us is the prediction
Shape = tuple[int, ...]


@dataclass(frozen=True)
class OpRow:
    """One row."""

    op: str  # as in traces, e.g. "aten::mm"; an overload ("aten::add.out") is left out.
    # one per tensor argument, in the order of the op's schema; None for one left out
    shapes: tuple[Shape | None, ...] = ()
    dtypes: tuple[str, ...] = ()  # of these tensors, torch's names
    arguments: Mapping[str, Any] = field(default_factory=dict)  # the other arguments, by name of the schema
    direction: str = DIRECTIONS[0]  # "forward", or "backward": the gradients of its inputs
    kind: str = OP  # "op", "collective" or "host"
    tf32: bool = False  # products in float32 may use TF32
    measured_us: float | None = None  # None not measured
    launch_included: bool = False  # the measured time is the host's, from the call to the end of its work
    access: LookupAccess = field(default_factory=LookupAccess)  # of an embedding lookup
    turns: float | None = None  # products in turn on operands of their own; None: as in programs


def read_op_rows(path: Path) -> tuple[pd.DataFrame, tuple[OpRow, ...]]:
    """The table as it is, and its rows.

    Raises:
        InputError: it cannot be read, lacks a column, is empty, or a row is no op (names the row).
    """
    with reading(path):
        table = _read(path)
        missing = [name for name in NEEDED if name not in table.columns]
        if missing:
            raise InputError(f"column {missing[0]!r} is missing", where=str(path), allowed=KNOWN)
        if table.empty:
            raise InputError("holds no rows", where=str(path))
        records = table.astype(object).where(table.notna(), None).to_dict("records")
        return table, tuple(_row(record, f"{path}, row {place + 1}") for place, record in enumerate(records))


def _read(path: Path) -> pd.DataFrame:
    if path.suffix not in SUFFIXES:
        raise InputError(f"suffix {path.suffix!r}", where=str(path), allowed=", ".join(SUFFIXES))
    if not path.is_file():
        raise InputError("no such file", where=str(path), allowed=f"an op table: {', '.join(SUFFIXES)}")
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    return pd.read_csv(path) if path.suffix == ".csv" else pd.DataFrame(_lines(path.read_text(encoding="utf-8"), path))


def _lines(text: str, path: Path) -> list[dict[str, object]]:
    result = []
    for place, line in enumerate(text.splitlines()):
        if line.strip():
            where = f"{path}, line {place + 1}"
            entry = _json(line, where)
            if not isinstance(entry, dict):
                raise InputError("is no object", where=where, allowed='{"op": ..., "shapes": ...}')
            result.append(entry)
    return result


def _json(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON ({error})", where=where) from None


def _row(entry: Mapping[Any, Any], where: str) -> OpRow:
    op, kind = entry.get("op"), entry.get("kind") or OP
    if not isinstance(op, str) or not op:
        raise InputError(f"op is {op!r}", where=where, allowed="a name as in traces, e.g. aten::mm")
    measured = _measured(entry.get(MEASURED if MEASURED in entry else "latency_us"), where)
    launched = bool(entry.get("launch_included") or False)
    if kind != OP:
        return OpRow(op, kind=str(kind), measured_us=measured, launch_included=launched)
    shapes = _shapes(_decoded(entry.get("shapes"), f"{where}, shapes"), where)
    direction = entry.get("direction") or DIRECTIONS[0]
    if direction not in DIRECTIONS:
        raise InputError(f"direction is {direction!r}", where=where, allowed=", ".join(DIRECTIONS))
    arguments = _decoded(entry.get("arguments"), f"{where}, arguments") or {}
    if not isinstance(arguments, Mapping):
        raise InputError(f"arguments is {arguments!r}", where=where, allowed="a mapping of names to values")
    dtypes, plain = _dtypes(entry, len(shapes), where), op.split(".")[0]
    decoded = {**entry, **{name: _decoded(entry.get(name), f"{where}, {name}") for name in LISTS}}
    access = read_access(decoded, plain, shapes, where)
    return OpRow(plain, shapes, dtypes, arguments, str(direction), OP, bool(entry.get("tf32") or False),
                 measured, launched, access, read_turns(entry, where))  # fmt: skip


def _decoded(value: object, where: str) -> object:
    """JSON text (Parquet, CSV), or a value as it is (JSON lines)."""
    return _json(value, where) if isinstance(value, str) else value


def _shapes(result: object, where: str) -> tuple[Shape | None, ...]:
    whole = isinstance(result, list) and all(
        shape is None or (isinstance(shape, list) and all(type(edge) is int and edge >= 0 for edge in shape))
        for shape in result
    )
    if not whole or not result:
        raise InputError(f"shapes is {result!r}", where=where, allowed="a list of shapes, e.g. [[32, 64], [64, 8]]")
    return tuple(None if shape is None else tuple(shape) for shape in result)  # type: ignore[attr-defined]


def _dtypes(entry: Mapping[Any, Any], num_tensors: int, where: str) -> tuple[str, ...]:
    several = _decoded(entry.get("dtypes"), f"{where}, dtypes")
    dtypes = several if several is not None else [entry.get("dtype")] * num_tensors
    if not isinstance(dtypes, list) or len(dtypes) != num_tensors or not all(isinstance(d, str) for d in dtypes):
        raise InputError(f"dtypes are {dtypes!r}", where=where, allowed="dtype: one name, or dtypes: one per shape")
    return tuple(dtypes)


def _measured(result: object, where: str) -> float | None:
    value = _number(result)
    if result is not None and (value is None or value <= 0):
        raise InputError(f"latency_us is {result!r}", where=where, allowed="a number above 0, or nothing")
    return value
