"""The whole page, in its order: the answer and its warnings, where the time goes, the step as it runs, its ops."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import pandas as pd

from gnnperf.predict import StepPrediction
from gnnperf.report.json_document import document
from gnnperf.report.page import breakdown, head, markup, ops, path
from gnnperf.report.page.markup import Markup, Td, note, section, table, text_td
from gnnperf.report.page.timeline_data import timeline_data
from gnnperf.report.summary import family_errors, work_table
from gnnperf.report.text import headline, target

TIMELINE_HELP = (
    "Drag to pan; Ctrl and the wheel, or + and -, to zoom; arrows pan, 0 shows all. Shift and drag chooses a stretch. "
    "N and P go along the critical path, which is underlined. Slices narrower than a pixel are drawn together. Dashed: "
    "where the predicted step begins and ends."
)


def html_report(answer: StepPrediction, nodes: pd.DataFrame) -> str:
    """The page of an answer.

    Args:
        answer: what was predicted.
        nodes: its `nodes_table`, of which all figures next to those of prediction.json are made.
    """
    parts = list(_sections(answer, nodes))
    contents = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title, _ in parts)
    return "\n".join((
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        markup.policy(),
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(headline(answer))}</title>\n{markup.style()}\n</head>\n<body>",
        '<a class="skip" href="#main">Skip to the answer</a>',
        f'<header><p class="note">{escape(target(answer))}</p>',
        '<button id="theme" type="button" hidden></button></header>',
        f'<main id="main">\n<h1>{escape(headline(answer))}</h1>',
        head.warnings(answer), head.answer_cards(answer), head.whatif(answer),
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav>',
        *(section(name, title, content) for name, title, content in parts),
        "</main>",
        markup.json_block("timeline-data", timeline_data(answer, nodes)),
        markup.scripts(),
        "</body>\n</html>\n",
    ))  # fmt: skip


def _sections(answer: StepPrediction, nodes: pd.DataFrame) -> Iterable[tuple[str, str, str]]:
    """(name, title, content) of each part."""
    given, work = document(answer), work_table(nodes)
    on_path, step_us = path.path_nodes(nodes, given), answer.step_time_us
    if answer.findings is not None:
        yield "findings", "What holds the step up", head.findings(answer.findings)
    yield "sources", "Where latencies come from", breakdown.sources(answer) + ops.uncovered(answer.uncovered_ops)
    yield "breakdown", "Where the time goes", "\n".join((
        note(breakdown.SUMS_NOTE),
        breakdown.node_types(answer, work), breakdown.phases(answer, work), breakdown.families(answer, work),
        breakdown.ranks(answer, work),
    ))  # fmt: skip
    yield (
        "ranks",
        "Active, idle, exposed communication",
        breakdown.rank_time(breakdown.occupancy(nodes, given), step_us),
    )
    yield (
        "path",
        "Critical path",
        "\n".join(part(on_path, step_us) for part in (path.picture, path.phases, path.listing)),
    )
    yield "timeline", "Timeline", _timeline()
    yield "ops", "Top ops", ops.ops(work, step_us)
    yield "errors", "Errors by op family", ops.errors(_errors(answer, nodes), answer)
    if answer.peak_memory:
        yield "memory", "Peak memory", ops.peak_memory(answer)
    yield "provenance", "Provenance", _provenance(answer)


def _errors(answer: StepPrediction, nodes: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame() if answer.measured_step_time_us is None else family_errors(nodes)


def _timeline() -> Markup:
    """What timeline_view.js finds and fills."""
    return Markup(
        f"{note(TIMELINE_HELP)}"
        "<noscript><p>The timeline needs JavaScript; everything else on this page does not.</p></noscript>"
        '<div id="timeline-tools" class="tools" hidden></div>'
        '<div id="timeline-box" hidden><div id="timeline-size"><canvas id="timeline-canvas" tabindex="0" role="img" '
        'aria-label="Timeline of all ranks" aria-describedby="timeline-said"></canvas></div></div>'
        '<ul id="timeline-keys" class="keys"></ul><p id="timeline-said" class="note" aria-live="polite"></p>'
        '<div id="timeline-tip" role="tooltip" hidden></div>'
    )


def _provenance(answer: StepPrediction) -> Markup:
    rows = ((Td(name), text_td(value)) for name, value in _flat(answer.provenance))
    return table("Versions and inputs", ("what", "value"), rows)


def _flat(values: dict[str, object], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", "none" if value is None else str(value)
