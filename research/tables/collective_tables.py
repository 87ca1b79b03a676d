"""One form for collective tables: published ones, `gnnperf calibrate`'s op table, a user's own with these columns."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import InputError, read_parquet, untrusted
from gnnperf.hardware import KINDS

ELEMENT_BYTES = {"float32": 4, "float16": 2, "int8": 1}

TEXT, NUMBER, COUNT = "text", "number", "count"
COLUMNS: Mapping[str, tuple[str, str]] = {
    "kind": (TEXT, "as in graphs: all_reduce, all_gather, reduce_scatter, all_to_all, send_recv"),
    "message_bytes": (NUMBER, "bytes of one rank's input, as schema.NODE_COLUMNS states: what each rank sends"),
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
UNMEASURED = "latency, size or group is missing or not positive"
NEEDED = ("kind", "message_bytes", "group_size", "link", "latency_us")
ASSUMED = {"nodes": 1, "device": "", "platform": "", "dtype": "", "source": "", "method": ""}
SUFFIXES = (".parquet", ".csv")

OP_TABLE_COLUMN = "num_rounds"  # of calibrate's op table only
HOSTS_OF_A_RATE = 2  # a link named by its rate ("0.25g") joins two namespaces, one rank or block each
POINT_TO_POINT = {"send": "send_recv", "recv": "send_recv"}


@dataclass(frozen=True)
class CollectiveTable:
    """Measured collectives of one or several sources."""

    rows: pd.DataFrame  # one measurement each, columns as in COLUMNS; repeated ones are kept, as they show the noise
    dropped: Mapping[str, int] = field(default_factory=dict)  # "source: reason" -> measurements left out for it


def collective_table(parts: Mapping[str, object], num_rows: int) -> CollectiveTable:
    """A table of `parts` (column -> one value, or [num_rows]) without rows that measure nothing."""
    if set(parts) != set(COLUMNS):
        raise KeyError(f"missing or unknown: {sorted(set(parts) ^ set(COLUMNS))}")
    rows = pd.DataFrame({name: _column(parts[name], kind, num_rows) for name, (kind, _) in COLUMNS.items()})
    good = (rows["latency_us"] > 0) & (rows["message_bytes"] > 0) & (rows["group_size"] > 0) & (rows["nodes"] > 0)
    bad = int((~good).sum())
    retained = rows[good.to_numpy()].reset_index(drop=True)
    return CollectiveTable(retained, {f"{parts['source']}: {UNMEASURED}": bad} if bad else {})


def _column(values: object, kind: str, num_rows: int) -> pd.Series:
    index = pd.RangeIndex(num_rows)
    if kind == TEXT:
        return pd.Series(values if np.isscalar(values) else np.asarray(values, object), index, dtype=str)
    numbers = pd.Series(values if np.isscalar(values) else np.asarray(values, float), index, dtype=float)
    return numbers.fillna(-1).astype(int) if kind == COUNT else numbers


def read_collective_table(path: Path) -> CollectiveTable:
    """Rows of a .parquet or .csv file; columns that are not NEEDED may be missing, `nodes` is then 1.

    Raises InputError: not readable, a column is missing, what should be a number is none, or no row measures anything.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"has the suffix {path.suffix!r}", where=str(path), allowed=", ".join(SUFFIXES))
    with untrusted.reading(path, remedy="check the path and the file"):
        result = read_parquet(path).to_pandas() if path.suffix == ".parquet" else pd.read_csv(path)
    table = calibrated(result) if OP_TABLE_COLUMN in result else _own(result, path)
    if table.rows.empty:
        raise InputError("no measured collective", where=str(path), allowed=f"rows with {', '.join(NEEDED)}")
    return table


def _own(result: pd.DataFrame, path: Path) -> CollectiveTable:
    missing = [column for column in NEEDED if column not in result]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing", where=str(path),
                         allowed="; ".join(f"{name}: {COLUMNS[name][1]}" for name in NEEDED),
                         remedy="name an ops.parquet of gnnperf calibrate, or add the column")  # fmt: skip
    columns: dict[str, object] = {name: result[name] if name in result else ASSUMED[name] for name in COLUMNS}
    for name, (kind, _) in COLUMNS.items():
        if kind in (NUMBER, COUNT) and name in result:
            try:
                columns[name] = pd.to_numeric(result[name])
            except (TypeError, ValueError) as error:
                raise InputError(f"column {name!r} holds no numbers ({error})", where=str(path)) from None
    columns["kind"] = result["kind"].replace(POINT_TO_POINT)
    return collective_table(columns, len(result))


def calibrated(table: pd.DataFrame) -> CollectiveTable:
    """The collectives of an ops.parquet, each from the last rank's arrival to the last end."""
    rows = table[(table["kind"] == "collective").to_numpy()].reset_index(drop=True)
    links = rows["link"].astype(str).map(link_name)
    return collective_table(
        {"kind": rows["op"].replace(POINT_TO_POINT), "message_bytes": rows["message_bytes"],
         "group_size": rows["ranks"].map(lambda text: len(json.loads(text))),
         "nodes": links.eq("network").map({True: HOSTS_OF_A_RATE, False: 1}), "device": rows["device"],
         "platform": rows["device"], "link": links, "dtype": "float32", "latency_us": rows["latency_us"],
         "source": "gnnperf calibrate", "method": "last arrival to last end, median over rounds"},
        len(rows),
    )  # fmt: skip


def link_name(measured: str) -> str:
    """Kind of a calibrated link: "NV18" nvlink; "lo" loopback; a rate ("0.25g") network; PIX, PHB, SYS, ... pcie."""
    if measured == "lo":
        return "loopback"
    if measured.startswith("NV"):
        return "nvlink"
    return "network" if measured.endswith("g") and measured[:1].isdigit() else "pcie"


def one_platform(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """The rows. Raises InputError: of several platforms, or a kind that graphs do not have."""
    names, odd = sorted(set(rows["platform"])), sorted(set(rows["kind"]) - set(KINDS))
    if odd:
        raise InputError(f"unknown kind {odd[0]!r}", where=where, allowed=", ".join(KINDS))
    if len(names) > 1:
        raise InputError(f"holds several platforms: {', '.join(names)}", where=where, remedy="fit each by itself")
    return rows
