"""A user's own table of collectives: `gnnperf calibrate`'s op table, or a table with the columns of `COLUMNS`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gnnperf.analytic.collective.calibrated import POINT_TO_POINT, read_calibrated
from gnnperf.analytic.collective.table import COLUMNS, COUNT, NUMBER, CollectiveTable, collective_table
from gnnperf.core import InputError, read_parquet, untrusted

SUFFIXES = (".parquet", ".csv")
NEEDED = ("kind", "message_bytes", "group_size", "link", "latency_us")
ASSUMED = {"nodes": 1, "device": "", "platform": "", "dtype": "", "source": "", "method": ""}
OP_TABLE_COLUMN = "num_rounds"  # no table of COLUMNS has it


def read_collective_table(path: Path) -> CollectiveTable:
    """Rows of a .parquet or .csv file; columns that are not NEEDED may be missing, `nodes` is then 1.

    Raises:
        InputError: not readable, a column is missing, what should be a number is none, or no row measures anything.
    """
    result = _read(path)
    table = read_calibrated(path) if OP_TABLE_COLUMN in result else _own(result, path)
    if table.rows.empty:
        raise InputError("no measured collective", where=str(path), allowed=f"rows with {', '.join(NEEDED)}")
    return table


def _read(path: Path) -> pd.DataFrame:
    if path.suffix not in SUFFIXES:
        raise InputError(f"has the suffix {path.suffix!r}", where=str(path), allowed=", ".join(SUFFIXES))
    with untrusted.reading(path, remedy="check the path and the file"):
        return read_parquet(path).to_pandas() if path.suffix == ".parquet" else pd.read_csv(path)


def _own(result: pd.DataFrame, path: Path) -> CollectiveTable:
    missing = [column for column in NEEDED if column not in result]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing", where=str(path),
                         allowed="; ".join(f"{name}: {COLUMNS[name][1]}" for name in NEEDED),
                         remedy="name an ops.parquet of gnnperf calibrate, or add the column")  # fmt: skip
    columns: dict[str, object] = {name: result[name] if name in result else ASSUMED[name] for name in COLUMNS}
    for name, (kind, _) in COLUMNS.items():
        if kind in (NUMBER, COUNT) and name in result:
            columns[name] = _numbers(result[name], name, path)
    columns["kind"] = result["kind"].replace(POINT_TO_POINT)
    return collective_table(columns, len(result))


def _numbers(values: pd.Series, name: str, path: Path) -> pd.Series:
    try:
        return pd.to_numeric(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"column {name!r} holds no numbers ({error})", where=str(path)) from None


def of_platform(rows: pd.DataFrame, platform: str | None, where: str) -> pd.DataFrame:
    """The rows of one platform; None: of the only one.

    Raises:
        InputError: no such platform, or none was named and there are several.
    """
    names = sorted(set(rows["platform"]))
    if platform is None and len(names) == 1:
        return rows
    if platform not in names:
        what = "holds several platforms" if platform is None else f"holds no platform {platform!r}"
        raise InputError(what, where=where, allowed=", ".join(names), remedy="pass --platform TEXT")
    return rows[rows["platform"] == platform].reset_index(drop=True)
