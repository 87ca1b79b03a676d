"""Measurements of others in one form: one row per measured op, sizes as numbers, units, and how it was measured."""

from pathlib import Path

from research.tables.aiconfigurator import read_aiconfigurator
from research.tables.calibrated import read_calibrated_ops
from research.tables.columns import COLUMNS, OpTable, joined
from research.tables.estimate_train_time import read_estimate_train_time
from research.tables.neusight import read_neusight
from research.tables.vidur import read_vidur

__all__ = [
    "COLUMNS",
    "OpTable",
    "joined",
    "read_aiconfigurator",
    "read_calibrated_ops",
    "read_estimate_train_time",
    "read_neusight",
    "read_op_tables",
    "read_vidur",
]

OP_TABLES = (read_neusight, read_aiconfigurator, read_estimate_train_time, read_vidur)


def read_op_tables(mirror: Path) -> OpTable:
    """Every op table of every source; sources that the mirror does not hold give no rows.

    Args:
        mirror: folder in the layout of the catalog of public data (`gnnperf data list`).
    """
    return joined(read(mirror) for read in OP_TABLES)
