"""Op tables predicted by the analytical model: `gnnperf ops predict`."""

from gnnperf.analytic.op_tables.predict import Estimate, estimate_rows
from gnnperf.analytic.op_tables.read import OpRow, read_op_rows

__all__ = ["Estimate", "OpRow", "estimate_rows", "read_op_rows"]
