"""Text to HTML: everything is escaped, but for what is marked as markup."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import msgspec
import pandas as pd

from gnnperf.core import content_security_policy, html_page, strict
from gnnperf.report.text import share_text, time_text

NUMBER = ' class="num"'
MAX_TEXT = 90  # characters of a cell; the whole text is its title


class Markup(str):
    """Text that is HTML already."""


@dataclass(frozen=True)
class Td:
    """One cell of a table."""

    text: str  # as read
    order: float | None = None  # what rows are sorted by; None: the text
    title: str = ""  # more than the cell has space for; "" none
    is_name: bool = False  # of what the row is about, whatever it is sorted by


Row = Sequence[Td | Markup]


def time_td(time_us: float) -> Td:
    """A duration, sorted by its value; unknown ones come last."""
    return Td(time_text(time_us), time_us if math.isfinite(time_us) else -math.inf)


def share_td(share: float) -> Td:
    """A fraction as a percentage."""
    return Td(share_text(share), share)


def signed_share_td(share: float) -> Td:
    """A signed error as a percentage."""
    return Td(f"{100.0 * share:+.1f} %", share)


def count_td(count: int) -> Td:
    """A number of what the column's head states."""
    return Td(f"{count:,}", float(count))


def rank_td(rank: int) -> Td:
    """A rank; -1: several together, which come last."""
    return Td(f"rank {rank}" if rank >= 0 else "several ranks", rank if rank >= 0 else math.inf, is_name=True)


def text_td(text: str) -> Td:
    """A text, shortened where it is long."""
    return Td(text) if len(text) <= MAX_TEXT else Td(f"{text[: MAX_TEXT - 3]}...", title=text)


def bar(share: float, color: str, begin: float = 0.0) -> Markup:
    """A bar as wide as `share` of its column, from `begin` on; `color` names a variable of the style sheet."""
    offset = f"margin-left:{100 * begin:.1f}%;" if begin else ""
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}%"
    return Markup(f'<span class="bar" style="{offset}width:{width};background:var(--{color})"></span>')


def bars(values: Iterable[float], colors: Iterable[str] | None = None) -> list[Markup]:
    """One bar per value, the largest as wide as its cell; `colors` as in `bar`."""
    known = [value if math.isfinite(value) else 0.0 for value in values]
    largest = max(known, default=0.0) or 1.0
    shades = ["compute"] * len(known) if colors is None else list(colors)
    return [bar(value / largest, color) for value, color in zip(known, shades, strict=True)]


def table(caption: str, heads: Sequence[str], rows: Iterable[Row], unknown: Collection[str] = ()) -> Markup:
    """A table whose columns can be sorted; a head that is "" is that of bars."""
    retained = [place for place, head in enumerate(heads) if head not in unknown]
    heads, rows = [heads[place] for place in retained], [[row[place] for place in retained] for row in rows]
    head = "".join('<th class="barcell"></th>' if not h else f'<th scope="col">{escape(h)}</th>' for h in heads)
    lines = "\n".join(f"<tr>{''.join(map(_td, row))}</tr>" for row in rows)
    return Markup(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="sortable">'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )


def _td(td: Td | Markup) -> str:
    if isinstance(td, Markup):
        return f'<td class="barcell">{td}</td>'
    order = ""
    if td.order is not None:
        last = "1e300" if td.order > 0 else "-1e300"
        value = f"{td.order:.9g}" if math.isfinite(td.order) else last
        order = f' data-order="{value}"{"" if td.is_name else NUMBER}'
    title = f' title="{escape(td.title)}"' if td.title else ""
    return f"<td{order}{title}>{escape(td.text)}</td>"


def section(name: str, title: str, *content: str) -> Markup:
    """A part of the page that the list of contents leads to; nothing where it has no content."""
    body = "\n".join(content)
    return Markup(f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{escape(title)}</h2>\n'
                  f"{body}\n</section>")  # fmt: skip


def subtitle(text: str) -> Markup:
    """The title of a part of a section."""
    return Markup(f"<h3>{escape(text)}</h3>")


def note(text: str) -> Markup:
    """A sentence that explains."""
    return Markup(f'<p class="note">{escape(text)}</p>')


def paragraph(text: str) -> Markup:
    """A sentence."""
    return Markup(f"<p>{escape(text)}</p>")


def stack(parts: Sequence[tuple[str, float, str]], width: float = 1.0) -> Markup:
    """One bar of colored parts (name, share, color), as wide as that share of the page, and its key."""
    pieces, keys = "", ""
    for name, share, color in parts:
        shown = share_text(share)
        if share > 0:
            drawn = f"width:{100 * share:.3f}%;background:var(--{color})"
            pieces += f'<span style="{drawn}" title="{escape(name)} {shown}"></span>'
        key = f'<span class="key" style="background:var(--{color})"></span>'
        keys += f"<li>{key}{escape(name)} <b>{shown}</b></li>"
    bar_style = f' style="width:{100 * width:.1f}%"' if width < 1 else ""
    return Markup(f'<div class="stack"{bar_style} aria-hidden="true">{pieces}</div>\n<ul class="keys">{keys}</ul>')


NUM_TICKS = 5


def over_time(label: str, rows: Iterable[str], size: tuple[int, int], drawn: str, time_us: float) -> Markup:
    """SVG shapes from time 0 to `time_us`, in units of `size` (width, height in px); `rows` are named on the left."""
    (width, height), names = size, "".join(f"<li>{escape(row)}</li>" for row in rows)
    ticks = "".join(f'<span style="left:{100 * n / NUM_TICKS:g}%">{time_text(time_us * n / NUM_TICKS)}</span>'
                    for n in range(NUM_TICKS + 1))  # fmt: skip
    return Markup(
        f'<div class="path" role="img" aria-label="{escape(label)}"><ul class="path-rows">{names}</ul>'
        f'<div class="path-time"><svg viewBox="0 0 {width} {height}" style="height:{height}px" '
        f'preserveAspectRatio="none">{drawn}</svg><div class="ticks">{ticks}</div></div></div>'
    )


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """Its rows, whose columns are attributes."""
    return list(frame.itertuples())


# The style sheet and the scripts of report.html, and how they and data are put into one page.


STYLE = "report.css"
SCRIPTS = (
    "theme.js",
    "tables.js",
    "timeline_data.js",
    "timeline_draw.js",
    "timeline_view.js",
    "timeline_facts.js",
    "timeline_input.js",
)


def asset(name: str) -> str:
    """The text of a file next to this module."""
    return files("gnnperf.report.page").joinpath(name).read_text(encoding="utf-8")


def page(title: str, *content: str) -> str:
    """A whole page without scripts, in the style of report.html."""
    body = "\n".join(content)
    return html_page(title, asset(STYLE), f'<main id="main">\n<h1>{escape(title)}</h1>\n{body}\n</main>')


def scripts() -> str:
    """The scripts as elements, in order."""
    return "\n".join(f"<script>{_script(name)}</script>" for name in SCRIPTS)


def policy() -> str:
    """What the page may do: run these scripts, and nothing else; load nothing from anywhere."""
    return content_security_policy(map(_script, SCRIPTS))


def json_block(name: str, value: Any) -> str:
    """A value as an element that scripts read and no one runs: no text in it can end it."""
    text = msgspec.json.encode(strict(value)).decode("utf-8")
    for sign in "<>&":  # `translate` takes half a second for the timeline of 64 ranks
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _script(name: str) -> str:
    return f"\n{asset(name)}"
