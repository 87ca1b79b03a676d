"""Columns of an op table for embedding lookups, and for products in turn.

{"op": "aten::embedding_bag", "shapes": [[1000000, 64], [65536], [2048]], "dtypes": ["float32", "int64", "int64"],
 "reuse_histogram": [41000, 5200, 1900, 700, 220, 40], "cache": "warm", "tables": 8}

One of three sets which rows: `skew` (row = floor(rows u^skew)), `zipf` (the i-th hottest row in proportion to i^-zipf:
Breslau et al. 1999) or `reuse_histogram` (rows that this call requests once, twice, 3 to 4, 5 to 8, ... times, as a
recorder's card counts them). Without: uniform. `tables` as large are looked up in turn; `cache` is warm, or flushed as
without.

Products have `tables` and `cache`, too: so many in turn on operands of their own (published tables: 6, warm), or
nothing of them in the cache. Without, as in programs.
"""

import math
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from gnnperf.analytic.embedding.counted_access import counted_access
from gnnperf.analytic.embedding.model import Access, zipf_access
from gnnperf.analytic.kernels.call import LookupAccess
from gnnperf.core import InputError
from gnnperf.graph import lookups_held

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
