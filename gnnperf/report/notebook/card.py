"""The answer as a short card of HTML. Names come from strangers' traces: everything is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gnnperf.predict import StepPrediction
from gnnperf.report.summary import top_ops
from gnnperf.report.text import (
    MEANING,
    comparison,
    coverage,
    finding_head,
    headline,
    target,
    time_rows,
    whatif_lines,
)

NUM_OPS = 5
NUM_UNCOVERED = 5
HEADS = ("op", "type", "on critical path", "predicted, all ranks", "measured, all ranks")
WARN = "border-left:4px solid #d08c3f;padding:.1rem .6rem;margin:.2rem 0"


def card(answer: StepPrediction) -> str:
    """Warnings, step time and interval, what is covered, findings, the ops with most time on the critical path."""
    dim = 'style="opacity:.7"'
    lines = [
        *(f'<div style="{WARN}">{escape(warning)}</div>' for warning in answer.warnings),
        f"<div {dim}>{escape(target(answer))}</div>",
        f'<div style="font-size:1.3em;font-weight:600">{escape(headline(answer))}</div>',
        f"<div {dim}>{escape(MEANING[answer.step_time_kind])}</div>",
        f"<div>{escape(comparison(answer))}</div>",
        *(f"<div><b>{escape(line)}</b></div>" for line in whatif_lines(answer)),
        f"<div>{escape(coverage(answer))}</div>",
        *_uncovered(answer),
        *(f"<div><b>finding</b> {escape(finding_head(found))}</div>" for found in answer.findings or ()),
        _ops(answer),
    ]
    return "<div>" + "\n".join(lines) + "</div>"


def _uncovered(answer: StepPrediction) -> Iterable[str]:
    ops = list(answer.uncovered_ops.items())
    if ops:
        more = f" and {len(ops) - NUM_UNCOVERED} more ops" if len(ops) > NUM_UNCOVERED else ""
        names = ", ".join(f"{name} ({count})" for name, count in ops[:NUM_UNCOVERED])
        yield f"<div><b>not covered</b> {escape(names + more)}</div>"


def _ops(answer: StepPrediction) -> str:
    ops = top_ops(answer, NUM_OPS)
    times = time_rows(ops, ("critical_us", "predicted_us", "measured_us"))
    rows = [(str(op), str(kind), *us) for op, kind, us in zip(ops["op_name"], ops["node_type"], times, strict=True)]
    head = "".join(f"<th>{escape(text)}</th>" for text in HEADS)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
