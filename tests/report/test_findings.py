"""Findings in the console, in prediction.json and in report.html."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from gnnperf.core.documents import to_json
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.console import print_summary
from gnnperf.report.json_document import document
from gnnperf.whatif.findings import Basis, Finding
from tests.predict.answers import toy_answer
from tests.report.page.pages import page_of

STRAGGLER = Finding(
    "straggler", "rank 1 is slower", ("it comes last", "by 20 us"), "balance it", Basis.MEASURED,
    "{straggler:{rank:1}}", 20.0, 20.0 / 185.0, True, ("what else it does <b>",),
)  # fmt: skip
UNPRICED = Finding("misaligned_products", "odd sizes", (), "pad", Basis.PREDICTED, "", None, None, False, ("nobody",))


def _shown(answer: StepPrediction) -> str:
    stream = io.StringIO()
    print_summary(answer, [], Console(file=stream, width=140))
    return stream.getvalue()


def test_console_reports_gain_evidence_edit_and_remedy() -> None:
    shown = _shown(replace(toy_answer(), findings=(STRAGGLER, UNPRICED)))
    for line in (
        "finding: straggler: rank 1 is slower; gain at most 20 us (10.8 % of the 185 us step of measured latencies)",
        "  by 20 us", "  edit: {straggler:{rank:1}}, on measured latencies", "  not known: what else it does <b>",
        "  what to do: balance it", "finding: misaligned products: odd sizes; gain not known",
    ):  # fmt: skip
        assert line in shown


def test_nothing_detected_is_stated_and_not_requested_is_silent() -> None:
    assert "no rule finds anything that holds the step up" in _shown(replace(toy_answer(), findings=()))
    assert "finding" not in _shown(toy_answer())
    assert "No rule finds anything." in page_of(replace(toy_answer(), findings=()))
    assert "What holds the step up" not in page_of(toy_answer())


def test_document_has_every_field() -> None:
    given = json.loads(to_json(document(replace(toy_answer(), findings=(STRAGGLER, UNPRICED)))))["findings"]
    assert given[0] == {
        "rule": "straggler", "cause": "rank 1 is slower", "basis": "measured",
        "evidence": ["it comes last", "by 20 us"], "remedy": "balance it", "edit": "{straggler:{rank:1}}",
        "gain_us": 20.0, "gain_share": 20.0 / 185.0, "gain_is_upper_bound": True,
        "unknown": ["what else it does <b>"],
    }  # fmt: skip
    assert (given[1]["edit"], given[1]["gain_us"]) == (None, None)
    assert document(toy_answer())["findings"] is None


def test_page_escapes_what_it_shows() -> None:
    page = page_of(replace(toy_answer(), findings=(STRAGGLER,)))
    assert "<li>not known: what else it does &lt;b&gt;</li>" in page
    assert "gain at most 20 us (10.8 % of the 185 us step of measured latencies)" in page
