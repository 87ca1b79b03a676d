"""NeuSight's tables of memory-bound ops, and the devices they were measured on."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pandas as pd

from gnnperf.hardware import DeviceSpec, match_device
from research.benchmarks._public_runs import mirror
from research.tables import read_neusight

CONVOLUTION_TABLE = "conv"
MATRIX_TABLES = ("bmm", "linear", CONVOLUTION_TABLE)


def memory_rows() -> tuple[pd.DataFrame, dict[str, DeviceSpec]]:
    """Rows of the memory-bound tables, and device name -> specification; devices without one are named and left out."""
    rows = _rows(mirror())
    return _known(rows[~rows["table"].isin(MATRIX_TABLES)])


def convolution_rows() -> tuple[pd.DataFrame, dict[str, DeviceSpec]]:
    """The same of convolutions."""
    rows = _rows(mirror())
    return _known(rows[rows["table"] == CONVOLUTION_TABLE])


@cache
def _rows(folder: Path) -> pd.DataFrame:
    """Of all tables, read once: both functions take parts of them and change nothing."""
    return read_neusight(folder).rows


def _known(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, DeviceSpec]]:
    if rows.empty:
        sys.exit("no tables of sitar-lab/NeuSight: set GNNPERF_DATA_MIRROR to a folder that holds them")
    result = {str(name): match_device(str(name)) for name in rows["device"].unique()}
    known = {name: device for name, device in result.items() if device is not None}
    for name in sorted(result.keys() - known.keys()):
        print(f"{name}: not in the catalog, left out")
    return rows[rows["device"].isin(known)].reset_index(drop=True), known
