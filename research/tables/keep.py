"""What is left out of a table, and the count of it: no row disappears silently."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from research.tables.columns import OpTable, joined

# What shows one measured point from another.
KEY = ("source", "table", "device", "op", "direction", "shapes", "dtypes", "method")
EMPTY = "a size is 0"
UNMEASURED = "latency is missing or not positive"
REPEATED = "the same point was measured before (the median of its rows is kept)"


def checked(rows: pd.DataFrame, sizes: Sequence[str]) -> OpTable:
    """Rows without empty shapes, without missing latencies, and with one row per point."""
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


THROTTLED_FACTOR = 2.0
THROTTLED = f"over {THROTTLED_FACTOR:g} times as long as a product on that device that is larger in every size"
PRODUCT_SIZES = ("batch", "m", "n", "k")


def without_throttled(table: OpTable) -> OpTable:
    """Products that were not far slower than a larger one of the same device and table.

    A row is left out if a row with at least the next power of two in each of batch, m, n, k took less than half as
    long: the device ran at another clock, or something else ran next to it. The powers of two make one pass enough.
    """
    slow = np.zeros(len(table.rows), bool)  # [n]
    products = table.rows[list(PRODUCT_SIZES)].notna().all(axis=1).to_numpy()
    for places in table.rows[products].groupby(["device", "table"]).indices.values():
        here = np.flatnonzero(products)[places]
        slow[here] = _slower_than_larger(table.rows.iloc[here])
    sources = table.rows.loc[slow, "source"].value_counts()
    counts = {f"{source}: {THROTTLED}": int(count) for source, count in sources.items()}
    retained = OpTable(table.rows[~slow].reset_index(drop=True), table.dropped)
    return joined([retained, OpTable(table.rows.iloc[:0], counts)])


def _slower_than_larger(rows: pd.DataFrame) -> np.ndarray:
    """[n] whether a larger product took less than half as long."""
    log_sizes = np.log2(rows[list(PRODUCT_SIZES)].to_numpy())  # [n, 4]
    floor, ceiling = np.floor(log_sizes).astype(int), np.ceil(log_sizes).astype(int)
    fastest = np.full(ceiling.max(axis=0) + 1, np.inf)  # [batch, m, n, k] of all that are at least 2^index
    latency_us = rows["latency_us"].to_numpy()  # [n]
    np.minimum.at(fastest, tuple(floor.T), latency_us)
    for axis in range(fastest.ndim):
        fastest = np.flip(np.minimum.accumulate(np.flip(fastest, axis), axis=axis), axis)
    return latency_us > THROTTLED_FACTOR * fastest[tuple(ceiling.T)]
