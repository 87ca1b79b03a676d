"""All op tables of a mirror, in one form."""

from __future__ import annotations

from pathlib import Path

from gnnperf.analytic.tables.aiconfigurator import read_aiconfigurator
from gnnperf.analytic.tables.columns import OpTable, joined
from gnnperf.analytic.tables.estimate_train_time import read_estimate_train_time
from gnnperf.analytic.tables.neusight import read_neusight
from gnnperf.analytic.tables.vidur import read_vidur

OP_TABLES = (read_neusight, read_aiconfigurator, read_estimate_train_time, read_vidur)


def read_op_tables(mirror: Path) -> OpTable:
    """Every op table of every source; sources that the mirror does not hold give no rows.

    Args:
        mirror: folder in the layout of the catalog of public data (`gnnperf data list`).
    """
    return joined(read(mirror) for read in OP_TABLES)
