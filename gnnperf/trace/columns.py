"""Python lists of one field -> one column: integers, floats, nanoseconds, categories."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from gnnperf.trace.limits import MAX_VALUE_BYTES

INT64_MAX = 2**63 - 1
LARGEST_US = 9 * 10**15  # the year 2255; keeps microseconds * 1000 inside int64


def int_column(values: Sequence[Any]) -> np.ndarray:
    """[n] int64; None and what an int64 cannot hold (an unsigned "minus one") are -1."""
    filled = [-1 if v is None else v for v in values] if None in values else values
    try:
        return np.array(filled, dtype=np.int64)
    except (OverflowError, ValueError, TypeError):
        return np.array([v if isinstance(v, int) and -1 <= v <= INT64_MAX else -1 for v in filled], dtype=np.int64)


def float_column(values: Sequence[Any]) -> np.ndarray:
    """[n] float64; None is NaN."""
    return np.array(values, dtype=np.float64)


def ns_column(values: Sequence[Any]) -> np.ndarray:
    """[n] int64 ns from microseconds (int, float or Decimal), to the nearest ns; None becomes -1."""
    filled = [-1 if v is None else v for v in values] if None in values else values
    array = np.array(filled)
    if array.dtype.kind == "i":
        return np.clip(array, -LARGEST_US, LARGEST_US) * 1000
    if array.dtype.kind == "f":
        return np.rint(np.clip(array, -LARGEST_US, LARGEST_US) * 1000.0).astype(np.int64)
    limit = Decimal(LARGEST_US)
    return np.array([int(round(max(-limit, min(limit, Decimal(v))) * 1000)) for v in filled], dtype=np.int64)


def text_column(values: Sequence[Any]) -> pd.Categorical:
    """A categorical of strings; None is null."""
    codes, uniques = pd.factorize(objects(values))
    return categorical(codes, [str(u) for u in uniques])


def json_column(values: Sequence[bytes]) -> pd.Categorical:
    """A categorical of compact JSON text; absent, empty and over-long values are null.

    Equal lists written with other white space become one category.
    """
    raw_codes, uniques = pd.factorize(objects(values))
    compact_codes, compact = pd.factorize(objects([_compact(u) for u in uniques]))
    return categorical(np.append(compact_codes, -1)[raw_codes], list(compact))


def lane_column(values: Sequence[Any]) -> np.ndarray:
    """[n] int64 thread or stream numbers; each distinct spelling is converted once."""
    if all(type(v) is int for v in values):
        return int_column(values)
    codes, uniques = pd.factorize(objects(values))
    spelled: dict[str, int] = {}
    return np.array([*(_lane(u, spelled) for u in uniques), -1], dtype=np.int64)[codes]


def thread_column(values: Sequence[Any]) -> np.ndarray:
    """[n] int64 host threads, never negative: 2022 and 2023 files wrap pthread ids into int32."""
    lanes = lane_column(values)
    return np.where(lanes < 0, lanes & 0xFFFFFFFF, lanes)


def categorical(codes: np.ndarray, texts: list[str]) -> pd.Categorical:
    """A categorical from codes [n] (-1 null) and the text of each code."""
    return pd.Categorical.from_codes(codes, pd.Index(texts, dtype="str"))


def objects(values: Sequence[Any]) -> np.ndarray:
    """[n] object array, whatever the entries are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _compact(raw: bytes) -> str | None:
    if not 0 < len(raw) <= MAX_VALUE_BYTES or raw in (b"null", b"[]"):
        return None
    try:
        return msgspec.json.format(raw, indent=-1).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _lane(value: Any, spelled: dict[str, int]) -> int:
    """The number in it ("stream 7", "4093687616"), else a number of its own that no thread has."""
    if isinstance(value, int):
        return value if -1 <= value <= INT64_MAX else -1
    digits = "".join(c for c in str(value) if c.isdigit())[:18]
    return int(digits) if digits else spelled.setdefault(str(value), INT64_MAX - len(spelled))
