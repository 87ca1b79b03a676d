"""A comparison as one HTML file that needs no network: a waterfall per way of adding up."""

from __future__ import annotations

from html import escape

from plotly.graph_objects import Figure, Waterfall

from gnnperf.report.compare.changes import Change, Comparison, leading
from gnnperf.report.compare.text import headline, sides, signed, warnings
from gnnperf.report.text import time_text

NUM_PARTS = 15
STYLE = "body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }"
LONGER, SHORTER, STEP = "#b5443c", "#5b8c5a", "#3b6fb6"


def comparison_page(found: Comparison) -> str:
    """The whole page: headline, what is compared, warnings, waterfalls."""
    figures = [waterfall(by, changes, found) for by, changes in found.changes.items()]
    drawn = [
        figure.to_html(full_html=False, include_plotlyjs=place == 0, div_id=f"waterfall{place}")
        for place, figure in enumerate(figures)
    ]
    said = [f"<p>{escape(line)}</p>" for line in (*sides(found), *warnings(found))]
    title = escape(headline(found))
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    body = "\n".join([f"<h1>{title}</h1>", *said, *drawn])
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def waterfall(by: str, changes: tuple[Change, ...], found: Comparison) -> Figure:
    """From step A to step B, the largest change first."""
    parts = leading(changes, NUM_PARTS)
    times_ms = [found.a.step_time_us, *(part.change_us for part in parts), found.b.step_time_us]
    texts = [time_text(found.a.step_time_us), *(signed(p.change_us) for p in parts), time_text(found.b.step_time_us)]
    drawn = Waterfall(
        x=["step A", *(escape(part.name) for part in parts), "step B"],
        y=[us / 1000.0 for us in times_ms],
        measure=["absolute", *["relative"] * len(parts), "total"],
        text=texts,
        increasing_marker_color=LONGER,
        decreasing_marker_color=SHORTER,
        totals_marker_color=STEP,
    )
    title = f"by {by}: time on the critical path"
    return Figure(drawn).update_yaxes(title="ms").update_layout(title=title, height=460, showlegend=False)
