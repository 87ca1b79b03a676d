"""Rows in groups, by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd


def grouped(rows: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Values of the columns `by` as text, and the positions [k] of the rows that have them; sorted by values."""
    keys = rows[list(by)].astype(object).reset_index(drop=True)
    for values, part in keys.groupby(list(by), sort=True):
        yield tuple(str(value) for value in values), np.array(part.index)
