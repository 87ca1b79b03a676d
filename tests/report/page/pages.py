"""Pages of answers, as predict.py writes them."""

from __future__ import annotations

from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.page import html_report
from gnnperf.report.summary import nodes_table


def page_of(answer: StepPrediction) -> str:
    """report.html."""
    return html_report(answer, nodes_table(answer))
