"""Predictions from Python and in notebooks: `gnnperf.predict(...)`, with cards and figures."""

from gnnperf.report.notebook.answer import Answer, predict

__all__ = ["Answer", "predict"]
