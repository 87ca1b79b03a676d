"""The file that `gnnperf calibrate` writes, ops.parquet: one row per call that was timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gnnperf.errors import InputError

REMEDY = "name an ops.parquet"


def rows_of_kind(path: Path, kind: str, needed: Sequence[str]) -> pd.DataFrame:
    """Its rows of one kind ("op", "collective"), numbered from 0.

    Raises:
        InputError: not readable, or one of the needed columns is missing.
    """
    try:
        found = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read ({error})", where=str(path), remedy=REMEDY) from None
    missing = [column for column in needed if column not in found]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing", where=str(path), remedy=REMEDY)
    return found[(found["kind"] == kind).to_numpy()].reset_index(drop=True)
