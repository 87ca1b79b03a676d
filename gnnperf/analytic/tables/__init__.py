"""Measurements of others in one form: one row per measured op, sizes as numbers, units, and how it was measured."""

from gnnperf.analytic.tables.aiconfigurator import read_aiconfigurator
from gnnperf.analytic.tables.calibrated import read_calibrated_ops
from gnnperf.analytic.tables.columns import COLUMNS, OpTable, joined
from gnnperf.analytic.tables.estimate_train_time import read_estimate_train_time
from gnnperf.analytic.tables.neusight import read_neusight
from gnnperf.analytic.tables.read import read_op_tables
from gnnperf.analytic.tables.vidur import read_vidur

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
