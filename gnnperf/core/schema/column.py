"""What a column is, and the check of a table at a room's door."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core.errors import InputError


@dataclass(frozen=True)
class Column:
    """One column of a table: its numpy or pandas dtype, its unit and what it means."""

    name: str
    dtype: str
    unit: str
    meaning: str


def names(columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Their names, in order."""
    return tuple(column.name for column in columns)


def validate(frame: pd.DataFrame, columns: tuple[Column, ...], where: str) -> None:
    """Check a table at a room's door.

    Raises:
        InputError: a column is missing or has another dtype.
    """
    for column in columns:
        if column.name not in frame.columns:
            raise InputError(
                f"column {column.name!r} is missing", where=where, allowed=", ".join(c.name for c in columns)
            )
        found = str(frame[column.name].dtype)
        if found != column.dtype and np.dtype("O") != frame[column.name].dtype:
            raise InputError(f"column {column.name!r} has dtype {found}", where=where, allowed=column.dtype)
