"""Python lists of one field -> one column: integers, floats, nanoseconds, categories."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.trace.input_texts import LOST, input_text
from gnnperf.trace.limits import MAX_ELEMENTS, MAX_ID

LARGEST_US = MAX_ID // 1000  # the year 2116
MISSING_NS = -MAX_ID  # a time that is not stated; far from every real one, and differences to it still fit
DIGITS = re.compile("[0-9]+")


def int_column(values: list[Any], below: int = MAX_ID) -> np.ndarray:
    """[n] int64; None and what is no identifier (negative, or an unsigned "minus one") are -1."""
    if values.count(-1) == len(values):
        return np.full(len(values), -1, dtype=np.int64)
    try:
        array = np.array(values, dtype=np.int64)
    except (OverflowError, ValueError, TypeError):
        array = np.array([v if isinstance(v, int) and -1 <= v < below else -1 for v in values], dtype=np.int64)
    return np.where((array >= 0) & (array < below), array, -1)


def float_column(values: list[Any]) -> np.ndarray:
    """[n] float64; None and what is no size are NaN."""
    array = np.array(values, dtype=np.float64)
    return np.where((array >= 0) & (array <= MAX_ELEMENTS), array, np.nan)


def ns_column(values: list[Any]) -> np.ndarray:
    """[n] int64 ns from microseconds (int, float or Decimal), to the nearest ns; None and absurd times are MISSING_NS.

    Whole microseconds and their fraction are converted apart: their sum in ns does not fit into a float64.
    """
    if Decimal in set(map(type, values)):
        return np.array([_decimal_ns(v) for v in values], dtype=np.int64)
    try:
        array = np.array(values, dtype=np.float64)  # None is NaN
    except OverflowError:  # a whole number beyond every float64
        return ns_column([v if v is None or abs(v) <= LARGEST_US else None for v in values])
    missing = ~(np.abs(array) <= LARGEST_US)  # NaN, too
    array = np.where(missing, 0.0, array)
    whole = np.trunc(array)
    ns = whole.astype(np.int64) * 1000 + np.rint((array - whole) * 1000.0).astype(np.int64)
    return np.where(missing, MISSING_NS, ns)


def _decimal_ns(value: Decimal | float | None) -> int:
    if value is None or not (exact := Decimal(value)).is_finite() or not -LARGEST_US <= exact <= LARGEST_US:
        return MISSING_NS
    return round(exact * 1000)


class Codes(dict[Any, int]):
    """Numbers the values it is requested in order of first appearance; None is -1."""

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


def json_column(codes: np.ndarray, texts: list[bytes], column: str, dropped: dict[str, int]) -> pd.Categorical:
    """A categorical of compact JSON from codes [n] of undecoded texts; what cannot be used is null.

    Equal lists written with other white space become one category.

    Args:
        codes: [num_events] of `texts`, -1 null.
        texts: as the file has them.
        column: input_dims, input_types or input_values.
        dropped: counts of what was left out, by reason; those of this column are added.
    """
    retained = [input_text(column, text) for text in texts]
    counts = np.bincount(codes + 1, minlength=len(texts) + 1)[1:]
    lost = sum(int(n) for n, (_, is_whole) in zip(counts, retained, strict=True) if not is_whole)
    if lost:
        dropped[LOST[column]] = dropped.get(LOST[column], 0) + lost
    compact_codes, compact = coded([text for text, _ in retained])
    return categorical(np.append(compact_codes, -1)[codes], compact)


def lane_column(values: list[Any]) -> np.ndarray:
    """[n] int64 thread or stream numbers; where they are text, each distinct spelling is converted once."""
    try:
        array = np.array(values, dtype=np.int64)
        if len(array) == 0 or (array.min() >= -(2**31) and array.max() < MAX_ID):
            return array
    except (OverflowError, ValueError, TypeError):
        pass
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


def _lane(value: Any) -> int:
    """The number in it ("stream 7", "4093687616"), else a number made of its letters that no thread has."""
    if isinstance(value, int):
        return value if -(2**31) <= value < MAX_ID else -1
    text = str(value)[:64]
    digits = "".join(DIGITS.findall(text))[:18]
    return int(digits) if digits else MAX_ID + int.from_bytes(text.encode()[:7], "big")
