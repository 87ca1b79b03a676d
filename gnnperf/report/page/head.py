"""The top of the page: warnings, the answer, what holds it up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from gnnperf.predict import StepPrediction
from gnnperf.report.page.markup import Markup, paragraph
from gnnperf.report.text import (
    MEANING,
    UNKNOWN,
    comparison,
    finding_details,
    finding_head,
    share_text,
    time_text,
    whatif_lines,
)
from gnnperf.whatif import Finding

UNNAMED_HARDWARE = "hardware that the trace does not name"


def warnings(answer: StepPrediction) -> Markup:
    """Every sentence of warning; nothing where there is none."""
    if not answer.warnings:
        return Markup("")
    sentences = "".join(f"<li>{escape(warning)}</li>" for warning in answer.warnings)
    count = f"{len(answer.warnings)} warning{'s' if len(answer.warnings) > 1 else ''}"
    return Markup(f'<section class="warnings" aria-label="Warnings"><h2>{count}</h2><ul>{sentences}</ul></section>')


def answer_cards(answer: StepPrediction) -> Markup:
    """Step time, interval, measured value, error and coverage, one card each."""
    bound = "at least " if answer.is_lower_bound else ""
    kind = str(answer.step_time_kind)
    cards = (
        ("predicted", f"predicted {kind}", f"{bound}{time_text(answer.step_time_us)}", MEANING[answer.step_time_kind]),
        ("interval", *_interval(answer)),
        ("measured", *_measured(answer)),
        ("error", *_error(answer)),
        ("coverage", *_covered(answer)),
    )
    return Markup(f'<dl class="cards">{"".join(_card(*card) for card in cards)}</dl>')


def _card(key: str, name: str, value: str, sentences: str) -> str:
    shown = re.sub(r"(?<=\d) ", "&nbsp;", escape(value))  # a number and its unit stay on one line
    given = f'<dt>{escape(name)}</dt><dd id="{key}">{shown}</dd><dd class="note">{escape(sentences)}</dd>'
    return f'<div class="card">{given}</div>'


def _interval(answer: StepPrediction) -> tuple[str, str, str]:
    if answer.step_time_interval_us is None or answer.interval_level is None:
        return "interval", "none", "a warning says why"
    low, high = map(time_text, answer.step_time_interval_us)
    return "interval", f"{low} to {high}", f"{100.0 * answer.interval_level:.0f} % of steps lie within theirs"


def _measured(answer: StepPrediction) -> tuple[str, str, str]:
    name = f"measured {answer.step_time_kind}"
    if answer.measured_step_time_us is None:
        return name, "none", comparison(answer)
    return name, time_text(answer.measured_step_time_us), f"on {answer.traced_hardware or UNNAMED_HARDWARE}"


def _error(answer: StepPrediction) -> tuple[str, str, str]:
    if answer.step_time_ratio is not None:
        return (
            "ratio",
            f"{answer.step_time_ratio:.3f}",
            "step time / that predicted the same way for the traced hardware",
        )
    if answer.step_time_error is None:
        return "error", "none", "nothing to compare with"
    left_out = "work that is not covered is left out" if answer.is_lower_bound else "predicted / measured - 1"
    return "error", f"{100.0 * answer.step_time_error:+.1f} %", left_out


def _covered(answer: StepPrediction) -> tuple[str, str, str]:
    share, missing = answer.uncovered_measured_share, sum(answer.uncovered_ops.values())
    nodes = f"{missing:,} nodes without a latency" if missing else "every node has a latency"
    covered = UNKNOWN if share is None else share_text(1.0 - share)
    if share is None:
        covered = "all nodes" if not missing else nodes
        return "covered", covered, "" if not missing else "by number: nothing was measured"
    return "covered", covered, f"of the measured node time; {nodes}"


def whatif(answer: StepPrediction) -> Markup:
    """Both step times and the edits; nothing without edits."""
    lines = whatif_lines(answer)
    return Markup("".join(f"<p><b>{escape(line)}</b></p>" for line in lines[:1]) + "".join(map(paragraph, lines[1:])))


def findings(result: Sequence[Finding]) -> Markup:
    """Each finding with its evidence."""
    if not result:
        return paragraph("No rule finds anything.")
    return Markup("\n".join(
        f"<details open><summary><b>{escape(finding_head(one))}</b></summary><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in finding_details(one))
        + "</ul></details>"
        for one in result
    ))  # fmt: skip
