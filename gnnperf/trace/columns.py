"""Python lists of one field -> one column: integers, floats, nanoseconds, categories."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from gnnperf.trace.limits import MAX_VALUE_BYTES

INT64_MAX = 2**63 - 1
LARGEST_US = 9 * 10**15  # the year 2255; keeps microseconds * 1000 inside int64


def int_column(values: list[Any]) -> np.ndarray:
    """[n] int64; None and what an int64 cannot hold (an unsigned "minus one") are -1."""
    if values.count(-1) == len(values):
        return np.full(len(values), -1, dtype=np.int64)
    try:
        return np.array(values, dtype=np.int64)
    except (OverflowError, ValueError, TypeError):
        return np.array([v if isinstance(v, int) and -1 <= v <= INT64_MAX else -1 for v in values], dtype=np.int64)


def float_column(values: list[Any]) -> np.ndarray:
    """[n] float64; None is NaN."""
    return np.array(values, dtype=np.float64)


def ns_column(values: list[Any]) -> np.ndarray:
    """[n] int64 ns from microseconds (int, float or Decimal), to the nearest ns; None becomes -1.

    Whole microseconds and their fraction are converted apart: their sum in ns does not fit into a float64.
    """
    if any(type(v) is Decimal for v in values[:1]):
        return np.array([_decimal_ns(v) for v in values], dtype=np.int64)
    array = np.array(values, dtype=np.float64)  # None is NaN
    missing = np.isnan(array)
    array = np.clip(np.where(missing, 0.0, array), -LARGEST_US, LARGEST_US)
    whole = np.trunc(array)
    ns = whole.astype(np.int64) * 1000 + np.rint((array - whole) * 1000.0).astype(np.int64)
    return np.where(missing, -1, ns)


def _decimal_ns(value: Decimal | None) -> int:
    return -1 if value is None else int(round(max(-LARGEST_US, min(LARGEST_US, value)) * 1000))


class _Codes(dict[Any, int]):
    """Numbers its keys in order of first appearance."""

    def __missing__(self, key: Any) -> int:
        self[key] = code = len(self) - 1  # None is in it already
        return code


def coded(values: Sequence[Hashable]) -> tuple[np.ndarray, list[Any]]:
    """Codes [n] int32 and the distinct values in order of first appearance; None is -1 and no value."""
    index = _Codes({None: -1})
    codes = np.fromiter(map(index.__getitem__, values), np.int32, len(values))
    return codes, list(index)[1:]


def text_column(values: Sequence[str | None]) -> pd.Categorical:
    """A categorical of strings; None is null."""
    return categorical(*coded(values))


def json_column(values: Sequence[bytes | None]) -> pd.Categorical:
    """A categorical of compact JSON text; absent, empty and over-long values are null.

    Equal lists written with other white space become one category.
    """
    raw_codes, uniques = coded(values)
    compact_codes, compact = coded([_compact(u) for u in uniques])
    return categorical(np.append(compact_codes, -1)[raw_codes], compact)


def lane_column(values: list[Any]) -> np.ndarray:
    """[n] int64 thread or stream numbers; where they are text, each distinct spelling is converted once."""
    try:
        return np.array(values, dtype=np.int64)
    except (OverflowError, ValueError, TypeError):
        codes, uniques = coded(values)
    spelled: dict[str, int] = {}
    return np.array([*(_lane(u, spelled) for u in uniques), -1], dtype=np.int64)[codes]


def thread_column(values: list[Any]) -> np.ndarray:
    """[n] int64 host threads, never negative: 2022 and 2023 files wrap pthread ids into int32."""
    lanes = lane_column(values)
    return np.where(lanes < 0, lanes & 0xFFFFFFFF, lanes)


def categorical(codes: np.ndarray, texts: list[str]) -> pd.Categorical:
    """A categorical from codes [n] (-1 null) and the text of each code."""
    dtype = pd.CategoricalDtype(pd.Index(texts, dtype="str"))
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)


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
        return value if -(2**31) <= value <= INT64_MAX else -1
    digits = "".join(c for c in str(value) if c.isdigit())[:18]
    return int(digits) if digits else spelled.setdefault(str(value), INT64_MAX - len(spelled))
