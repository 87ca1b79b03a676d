"""Text files that other programs read: CSV without formulas, JSON without what JSON lacks."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pandas as pd

from gnnperf.core.output.terminal import visible

FORMULA = ("=", "+", "-", "@", "\t", "\n")  # what a spreadsheet takes for the beginning of a formula


def csv_text(table: pd.DataFrame) -> str:
    """A table as CSV that no spreadsheet computes: texts that look like formulas begin with a quote (OWASP).

    Numbers are as they were.
    """
    columns = {name: _records(table[name]) for name in table.columns}
    return pd.DataFrame(columns, index=table.index).set_axis(list(map(_record, columns)), axis=1).to_csv(index=False)


def _records(column: pd.Series) -> pd.Series:
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return column
    return column.astype(object).map(_record)


def _record(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = visible(value)  # a bare return would begin a row
    return f"'{text}" if text.startswith(FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def to_json(value: Any, indent: int = 2) -> bytes:
    """Indented strict JSON with a newline at the end: null for NaN and infinity, an escape for half a character."""
    return msgspec.json.format(msgspec.json.encode(strict(value)), indent=indent) + b"\n"


def strict(value: Any) -> Any:
    """The same value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode() if not value.isascii() else value
    if isinstance(value, dict):
        return {strict(key): strict(item) for key, item in value.items()}
    return [strict(item) for item in value] if isinstance(value, list | tuple) else value
