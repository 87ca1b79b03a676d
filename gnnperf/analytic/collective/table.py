"""One form for the collective tables of others: bytes of one rank's input, what linked the ranks, how measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

ELEMENT_BYTES = {"float32": 4, "float16": 2, "int8": 1}

TEXT, NUMBER, COUNT = "text", "number", "count"
COLUMNS: Mapping[str, tuple[str, str]] = {
    "kind": (TEXT, "as in graphs: all_reduce, all_gather, reduce_scatter, all_to_all, send_recv"),
    "message_bytes": (NUMBER, "bytes of one rank's input, as schema.NODE_COLUMNS says: what each rank sends"),
    "group_size": (COUNT, "ranks"),
    "nodes": (COUNT, "machines the group spans, in equal parts"),
    "device": (TEXT, "name of the device, as the table or its folder gives it"),
    "platform": (TEXT, "machines and library that were measured: rows of one platform are fitted together"),
    "link": (TEXT, "slowest link between the ranks: nvlink, nvlink_mesh (no switch), pcie, network"),
    "dtype": (TEXT, "of the elements"),
    "latency_us": (NUMBER, "us: of one call"),
    "source": (TEXT, "owner/name of the repository that published it"),
    "method": (TEXT, "how it was measured"),
}
# Rows that agree in these repeat one measurement: their spread is the table's noise.
POINT = ("source", "platform", "kind", "link", "group_size", "nodes", "dtype", "message_bytes")
UNMEASURED = "latency, size or group is missing or not positive"


@dataclass(frozen=True)
class CollectiveTable:
    """Measured collectives of one or several sources.

    Attributes:
        rows: one measurement per row, columns as in COLUMNS; repeated measurements are kept, as they show the noise.
        dropped: "source: reason" -> how many measurements were left out for it.
    """

    rows: pd.DataFrame
    dropped: Mapping[str, int] = field(default_factory=dict)


def collective_table(parts: Mapping[str, object], num_rows: int) -> CollectiveTable:
    """A table with every column of COLUMNS, without rows that measure nothing.

    Args:
        parts: column -> value of every row, or [num_rows] values.
        num_rows: how many.
    """
    if set(parts) != set(COLUMNS):
        raise KeyError(f"missing or unknown: {sorted(set(parts) ^ set(COLUMNS))}")
    rows = pd.DataFrame({name: _column(parts[name], kind, num_rows) for name, (kind, _) in COLUMNS.items()})
    good = (rows["latency_us"] > 0) & (rows["message_bytes"] > 0) & (rows["group_size"] > 0) & (rows["nodes"] > 0)
    bad = int((~good).sum())
    retained = rows[good.to_numpy()].reset_index(drop=True)
    return CollectiveTable(retained, {f"{parts['source']}: {UNMEASURED}": bad} if bad else {})


def joined(tables: Iterable[CollectiveTable]) -> CollectiveTable:
    """All rows of several tables, renumbered; counts of what was left out are added."""
    result = list(tables)
    dropped: dict[str, int] = {}
    for table in result:
        for reason, count in table.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    empty = {name: np.empty(0) for name in COLUMNS}
    rows = [table.rows for table in result] or [collective_table(empty, 0).rows]
    return CollectiveTable(pd.concat(rows, ignore_index=True), dropped)


def _column(values: object, kind: str, num_rows: int) -> pd.Series:
    index = pd.RangeIndex(num_rows)
    if kind == TEXT:
        return pd.Series(values if np.isscalar(values) else np.asarray(values, object), index, dtype=str)
    numbers = pd.Series(values if np.isscalar(values) else np.asarray(values, float), index, dtype=float)
    return numbers.fillna(-1).astype(int) if kind == COUNT else numbers
