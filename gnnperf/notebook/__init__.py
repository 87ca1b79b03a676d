"""Predictions from Python and in notebooks: `gnnperf.predict(...)`, with cards and figures."""

from gnnperf.notebook.answer import Answer
from gnnperf.notebook.ask import predict

__all__ = ["Answer", "predict"]
