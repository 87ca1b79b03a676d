"""Collectives of the user's own op table (`gnnperf calibrate`), in the form of published ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gnnperf.analytic.collective.table import CollectiveTable, collective_table
from gnnperf.core import InputError, read_parquet, untrusted

NEEDED = ("op", "kind", "message_bytes", "ranks", "link", "device", "latency_us")
REMEDY = "name an ops.parquet"
SOURCE = "gnnperf calibrate"
HOSTS_OF_A_RATE = 2  # a link named by its rate ("0.25g") joins two namespaces, one rank or block each
POINT_TO_POINT = {"send": "send_recv", "recv": "send_recv"}


def read_calibrated(path: Path) -> CollectiveTable:
    """The collectives of an ops.parquet.

    A latency is from the last rank's arrival to the last end, median over rounds.

    Raises:
        InputError: not such a file.
    """
    rows = rows_of_kind(path, "collective", NEEDED)
    links = rows["link"].astype(str).map(link_name)
    return collective_table(
        {"kind": rows["op"].replace(POINT_TO_POINT), "message_bytes": rows["message_bytes"],
         "group_size": rows["ranks"].map(lambda text: len(json.loads(text))),
         "nodes": links.eq("network").map({True: HOSTS_OF_A_RATE, False: 1}), "device": rows["device"],
         "platform": rows["device"], "link": links, "dtype": "float32", "latency_us": rows["latency_us"],
         "source": SOURCE, "method": "last arrival to last end, median over rounds"},
        len(rows),
    )  # fmt: skip


def link_name(measured: str) -> str:
    """Kind of a calibrated link: "NV18" nvlink; "lo" loopback; a rate ("0.25g") network; PIX, PHB, SYS, ... pcie."""
    if measured == "lo":
        return "loopback"
    if measured.startswith("NV"):
        return "nvlink"
    return "network" if measured.endswith("g") and measured[:1].isdigit() else "pcie"


def rows_of_kind(path: Path, kind: str, needed: Sequence[str]) -> pd.DataFrame:
    """Its rows of one kind ("op", "collective"), numbered from 0.

    Raises:
        InputError: not readable, or one of the needed columns is missing.
    """
    with untrusted.reading(path, remedy=REMEDY):
        result = read_parquet(path).to_pandas()
    missing = [column for column in (*needed, "kind") if column not in result]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing", where=str(path), remedy=REMEDY)
    return result[(result["kind"] == kind).to_numpy()].reset_index(drop=True)
