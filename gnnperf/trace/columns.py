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
TOO_DEEP = b"[" * 9  # shapes are lists of lists of numbers
MISSING_NS = -(2**62)  # a time that is not stated; far from every real one, and differences to it still fit


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
    """[n] int64 ns from microseconds (int, float or Decimal), to the nearest ns; None and absurd times are MISSING_NS.

    Whole microseconds and their fraction are converted apart: their sum in ns does not fit into a float64.
    """
    if any(type(v) is Decimal for v in values[:1]):
        return np.array([_decimal_ns(v) for v in values], dtype=np.int64)
    array = np.array(values, dtype=np.float64)  # None is NaN
    missing = ~(np.abs(array) <= LARGEST_US)  # NaN, too
    array = np.where(missing, 0.0, array)
    whole = np.trunc(array)
    ns = whole.astype(np.int64) * 1000 + np.rint((array - whole) * 1000.0).astype(np.int64)
    return np.where(missing, MISSING_NS, ns)


def _decimal_ns(value: Decimal | None) -> int:
    return MISSING_NS if value is None or abs(value) > LARGEST_US else round(value * 1000)


class Codes(dict[Any, int]):
    """Numbers the values it is asked for in order of first appearance; None is -1."""

    def __init__(self) -> None:
        super().__init__({None: -1})

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self) - 1
        return code

    def of(self, values: Sequence[Hashable]) -> np.ndarray:
        """[n] int32 codes."""
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))

    def uniques(self) -> list[Any]:
        """The value of each code."""
        return list(self)[1:]


def coded(values: Sequence[Hashable]) -> tuple[np.ndarray, list[Any]]:
    """Codes [n] int32 and the distinct values in order of first appearance; None is -1 and no value."""
    codes = Codes()
    return codes.of(values), codes.uniques()


def json_column(codes: np.ndarray, texts: list[bytes]) -> pd.Categorical:
    """A categorical of compact JSON from codes [n] of undecoded texts; empty and over-long values are null.

    Equal lists written with other white space become one category.
    """
    compact_codes, compact = coded([_compact(text) for text in texts])
    return categorical(np.append(compact_codes, -1)[codes], compact)


def lane_column(values: list[Any]) -> np.ndarray:
    """[n] int64 thread or stream numbers; where they are text, each distinct spelling is converted once."""
    try:
        return np.array(values, dtype=np.int64)
    except (OverflowError, ValueError, TypeError):
        codes, uniques = coded(values)
    return np.array([*map(_lane, uniques), -1], dtype=np.int64)[codes]


def thread_column(values: list[Any]) -> np.ndarray:
    """[n] int64 host threads, never negative: 2022 and 2023 files wrap pthread ids into int32."""
    lanes = lane_column(values)
    return np.where(lanes < 0, lanes & 0xFFFFFFFF, lanes)


def categorical(codes: np.ndarray, texts: list[str]) -> pd.Categorical:
    """A categorical from codes [n] (-1 null) and the text of each code."""
    dtype = pd.CategoricalDtype(pd.Index(texts, dtype="str"))
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)


def _compact(raw: bytes) -> str | None:
    if not 0 < len(raw) <= MAX_VALUE_BYTES or raw in (b"null", b"[]") or TOO_DEEP in raw:
        return None
    try:
        return msgspec.json.format(raw, indent=-1).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _lane(value: Any) -> int:
    """The number in it ("stream 7", "4093687616"), else a number made of its letters that no thread has."""
    if isinstance(value, int):
        return value if -(2**31) <= value <= INT64_MAX else -1
    digits = "".join(c for c in str(value) if c.isdigit())[:18]
    return int(digits) if digits else 2**62 + int.from_bytes(str(value).encode()[:7], "big")
