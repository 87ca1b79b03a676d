"""A comparison as one HTML file that needs no network: a waterfall per way of adding up."""

from __future__ import annotations

from html import escape

import numpy as np
from plotly.graph_objects import Figure, Waterfall

from gnnperf.core import plotly_page
from gnnperf.report.compare.changes import Change, Comparison, leading
from gnnperf.report.compare.text import headline, rate_lines, sides, signed, warnings
from gnnperf.report.text import time_text

NUM_PARTS = 15
BAR, AROUND_BARS = 26, 150  # pixels
SMALL = 0.5  # changes below this share of a step are drawn without the part of it that stays
ROOM = 0.12  # for the words right of the longest bar
STYLE = "body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }"
LONGER, SHORTER, STEP = "#b5443c", "#5b8c5a", "#3b6fb6"


def comparison_page(result: Comparison) -> str:
    """The whole page: headline, what is compared, warnings, waterfalls."""
    figures = [waterfall(by, changes, result) for by, changes in result.changes.items()]
    sentences = [f"<p>{escape(line)}</p>" for line in (*sides(result), *rate_lines(result), *warnings(result))]
    title = headline(result)
    return plotly_page(title, figures, STYLE, "\n".join([f"<h1>{escape(title)}</h1>", *sentences]))


def waterfall(by: str, changes: tuple[Change, ...], result: Comparison) -> Figure:
    """From step A down to step B, the largest change first; names of ops are long, so bars lie."""
    parts = leading(changes, NUM_PARTS)
    times_us = [result.a.step_time_us, *(part.change_us for part in parts), result.b.step_time_us]
    texts = [time_text(result.a.step_time_us), *(signed(p.change_us) for p in parts), time_text(result.b.step_time_us)]
    drawn = Waterfall(
        orientation="h",
        y=["step A", *(escape(part.name) for part in parts), "step B"],
        x=[us / 1000.0 for us in times_us],
        measure=["absolute", *["relative"] * len(parts), "total"],
        text=texts,
        textposition="outside",
        cliponaxis=False,
        increasing_marker_color=LONGER,
        decreasing_marker_color=SHORTER,
        totals_marker_color=STEP,
    )
    first, last = _shown_us(np.cumsum(times_us[:-1]))
    figure = Figure(drawn).update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(range=[first / 1000.0, last / 1000.0], title="ms" if first == 0 else "ms, not from 0")
    height = AROUND_BARS + BAR * len(times_us)
    return figure.update_layout(title=f"by {by}: time on the critical path", height=height, showlegend=False)


def _shown_us(levels_us: np.ndarray) -> tuple[float, float]:
    """The stretch of time to draw: all levels with space for words; from 0 unless that hid what changed."""
    low, high = float(levels_us.min()), float(levels_us.max())
    span = high - low
    first = max(low - span, 0.0) if span < SMALL * high else 0.0
    return first, high + ROOM * (high - first)
