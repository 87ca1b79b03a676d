"""Op tables answered by the analytical model: `gnnperf ops predict`."""

from gnnperf.analytic.op_tables.predict import Answer, answer_rows
from gnnperf.analytic.op_tables.read import OpRow, read_op_rows

__all__ = ["Answer", "OpRow", "answer_rows", "read_op_rows"]
