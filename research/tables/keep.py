"""What is left out of a table, and the count of it: no row disappears silently."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from research.tables.columns import OpTable

# What tells one measured point from another.
KEY = ("source", "table", "device", "op", "direction", "shapes", "dtypes", "method")
EMPTY = "a size is 0"
UNMEASURED = "latency is missing or not positive"
REPEATED = "the same point was measured before (the median of its rows is kept)"


def checked(rows: pd.DataFrame, sizes: Sequence[str]) -> OpTable:
    """Rows without empty shapes, without missing latencies, and with one row per point.

    Args:
        rows: columns as in COLUMNS.
        sizes: columns that must be above 0.
    """
    source = str(rows["source"].iloc[0]) if len(rows) else ""
    empty = (rows[list(sizes)] <= 0).any(axis=1).to_numpy()  # [n]
    unmeasured = ~empty & ~(rows["latency_us"] > 0).to_numpy()  # [n]
    left = rows[~empty & ~unmeasured]
    retained = _one_per_point(left)
    counts = {EMPTY: empty.sum(), UNMEASURED: unmeasured.sum(), REPEATED: len(left) - len(retained)}
    return OpTable(retained, {f"{source}: {reason}": int(count) for reason, count in counts.items() if count})


def _one_per_point(rows: pd.DataFrame) -> pd.DataFrame:
    """The first row of each point, with the median latency of all of its rows."""
    repeated = rows.duplicated(list(KEY), keep=False).to_numpy()  # [n]
    if not np.any(repeated):
        return rows.reset_index(drop=True)
    several = rows[repeated]
    median = several.groupby(list(KEY), sort=False, dropna=False)["latency_us"].transform("median")
    result = pd.concat([rows[~repeated], several.assign(latency_us=median).drop_duplicates(list(KEY))])
    return result.sort_index().reset_index(drop=True)
