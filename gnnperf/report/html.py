"""report.html: one file without scripts or references, readable offline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import pandas as pd

from gnnperf.findings import Finding
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.summary import by_node_type, by_rank, top_ops
from gnnperf.report.text import (
    MEANING,
    comparison,
    coverage,
    finding_details,
    finding_head,
    headline,
    path_delays,
    share_text,
    target,
    time_rows,
    whatif_lines,
)

NUM_OPS = 25
COLOR_OF = {
    "measured": "#5b8c5a", "gnn": "#3b6fb6", "gnn_calibrated": "#6f9bd1", "analytic": "#d08c3f", "uncovered": "#b5443c",
    "host": "#7a6fb0", "compute": "#3b6fb6", "memory": "#4aa3a2", "comm": "#d08c3f", "collective": "#c2703d",
}  # fmt: skip
STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.9rem; margin: .2rem 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem }
.dim { opacity: .7; margin: .2rem 0 } .warn { border-left: 4px solid #d08c3f; padding: .2rem .8rem; margin: .4rem 0 }
table { border-collapse: collapse; width: 100% } th { text-align: right; font-weight: 600 }
td, th { padding: .2rem .5rem; border-bottom: 1px solid #8884 } td { text-align: right }
td:first-child, th:first-child { text-align: left; overflow-wrap: anywhere; min-width: 13rem }
.stack { display: flex; height: 1.4rem; border-radius: 4px; overflow: hidden; margin: .4rem 0 }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .4em 0 1em }
.bar { background: #3b6fb6; height: .7rem; border-radius: 2px; min-width: 1px } .barcell { width: 22% }
"""


def html_report(answer: StepPrediction) -> str:
    """The whole page: warnings first, then headline, shares, top ops, breakdowns, provenance."""
    body = (
        f'<p class="dim">{escape(target(answer))}</p>',
        f"<h1>{escape(headline(answer))}</h1>",
        f'<p class="dim">{escape(MEANING[answer.step_time_kind])}</p>',
        f"<p>{escape(comparison(answer))}</p>",
        *(f"<p><b>{escape(line)}</b></p>" for line in whatif_lines(answer)),
        *(f'<p class="warn">{escape(warning)}</p>' for warning in answer.warnings),
        *([] if answer.findings is None else [_section("What holds the step up", _findings(answer.findings))]),
        _section("Share of step time by source", _stack(answer.source_share), _sources(answer)),
        _section(
            "Critical path by node type",
            _stack(answer.critical_path_share),
            f'<p class="dim">{path_delays(answer)}</p>',
        ),
        _section("Top ops", _ops(answer)),
        _section("By node type, all ranks together", _node_types(answer)),
        _section("By rank", _ranks(answer)),
        _section("Not covered", _uncovered(answer.uncovered_ops)),
        _section("Provenance", _provenance(answer)),
    )
    head = f'<meta charset="utf-8"><title>{escape(headline(answer))}</title><style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _section(title: str, *content: str) -> str:
    return f"<h2>{escape(title)}</h2>\n" + "\n".join(content)


def _findings(findings: Sequence[Finding]) -> str:
    """Each finding with its evidence."""
    if not findings:
        return "<p>No rule finds anything.</p>"
    return "\n".join(
        f"<details open><summary><b>{escape(finding_head(found))}</b></summary><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in finding_details(found))
        + "</ul></details>"
        for found in findings
    )


def _stack(share: dict[str, float]) -> str:
    """One bar of colored parts, and its key."""
    parts = [
        f'<div style="width:{100 * value:.3f}%;background:{COLOR_OF.get(name, "#888")}"></div>'
        for name, value in share.items()
    ]
    keys = [
        f'<span class="key" style="background:{COLOR_OF.get(name, "#888")}"></span>{escape(name)} {share_text(value)}'
        for name, value in share.items()
    ]
    return f'<div class="stack">{"".join(parts)}</div>\n<p>{" ".join(keys)}</p>'


def _sources(answer: StepPrediction) -> str:
    return f'<p class="dim">Shares follow the critical path; {escape(coverage(answer))}.</p>'


def _ops(answer: StepPrediction) -> str:
    heads = ("op", "type", "nodes", "predicted, all ranks", "measured, all ranks", "on critical path", "")
    ops = top_ops(answer, NUM_OPS)
    times = time_rows(ops, ("predicted_us", "measured_us", "critical_us"))
    names, counts = zip(ops["op_name"], ops["node_type"], strict=True), _counts(ops["num_nodes"])
    rows = zip(names, counts, times, _bars(ops["critical_us"]), strict=True)
    return _table(heads, ((*both, count, *us, bar) for both, count, us, bar in rows))


def _node_types(answer: StepPrediction) -> str:
    heads = ("node type", "nodes", "not covered", "predicted", "measured", "on critical path", "")
    totals = by_node_type(answer)
    times = time_rows(totals, ("predicted_us", "measured_us", "critical_us"))
    counts = zip(_counts(totals["num_nodes"]), _counts(totals["num_uncovered"]), strict=True)
    rows = zip(totals["node_type"], counts, times, _bars(totals["critical_us"]), strict=True)
    return _table(heads, ((kind, *both, *us, bar) for kind, both, us, bar in rows))


def _ranks(answer: StepPrediction) -> str:
    heads = ("rank", "completion", "host work", "device work", "")
    ranks = by_rank(answer)
    times = time_rows(ranks, ("completion_us", "host_us", "device_us"))
    rows = zip(_counts(ranks["rank"]), times, _bars(ranks["completion_us"]), strict=True)
    return _table(heads, ((rank, *us, bar) for rank, us, bar in rows))


def _counts(column: pd.Series) -> list[str]:
    return [f"{count:,}" for count in column]


def _uncovered(ops: dict[str, int]) -> str:
    if not ops:
        return "<p>Every op is covered.</p>"
    return _table(("op", "nodes without a latency"), ((name, f"{count:,}") for name, count in ops.items()))


def _provenance(answer: StepPrediction) -> str:
    return _table(("what", "value"), _flat(answer.provenance))


def _flat(values: dict[str, object], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", "none" if value is None else str(value)


class _Markup(str):
    """Text that is HTML already."""


def _bars(values: pd.Series) -> list[_Markup]:
    """One bar per value, the largest as wide as its cell."""
    largest = values.max() if len(values) and values.max() > 0 else 1.0
    return [_Markup(f'<div class="bar" style="width:{100 * value / largest:.1f}%"></div>') for value in values]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are escaped unless they are bars."""
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    lines = ("".join(_cell(cell) for cell in row) for row in rows)
    return f"<table>\n<tr>{head}</tr>\n" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "\n</table>"


def _cell(cell: str) -> str:
    return f'<td class="barcell">{cell}</td>' if isinstance(cell, _Markup) else f"<td>{escape(cell)}</td>"
