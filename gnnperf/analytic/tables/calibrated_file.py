"""The file that `gnnperf calibrate` writes, ops.parquet: one row per call that was timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gnnperf.core import untrusted
from gnnperf.core.errors import InputError
from gnnperf.core.schema.parquet import read_parquet

REMEDY = "name an ops.parquet"


def rows_of_kind(path: Path, kind: str, needed: Sequence[str]) -> pd.DataFrame:
    """Its rows of one kind ("op", "collective"), numbered from 0.

    Raises:
        InputError: not readable, or one of the needed columns is missing.
    """
    with untrusted.reading(path, remedy=REMEDY):
        found = read_parquet(path).to_pandas()
    missing = [column for column in (*needed, "kind") if column not in found]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing", where=str(path), remedy=REMEDY)
    return found[(found["kind"] == kind).to_numpy()].reset_index(drop=True)
