"""Tables with sentences and a picture: on the terminal, as an HTML page, and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gnnperf.core import InputError, csv_text, html_page, write_bytes
from gnnperf.report.console import show

SUFFIXES = (".html", ".csv")
NUM_COLORS = 8
STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #667; --c0: #2f6fbb; --c1: #b5561c; --c2: #2e8b57;
  --c3: #8a4fb0; --c4: #b03060; --c5: #7a6a00; --c6: #00808a; --c7: #555 }
@media (prefers-color-scheme: dark) { :root { --soft: #aab; --c0: #7db3f0; --c1: #f0a35e; --c2: #7bd3a0; --c3: #c9a0ea;
  --c4: #f08bb0; --c5: #d9c75a; --c6: #6fd6df; --c7: #bbb } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem } .dim { color: var(--soft); margin: .15rem 0 }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% }
td, th { padding: .2rem .5rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif } svg text { fill: currentColor }
.grid { stroke: var(--line); stroke-width: .5 } polyline { fill: none; stroke-width: 1.8 }
.sustained { stroke: currentColor } .peak { stroke: var(--soft); stroke-dasharray: 6 4 } .pair { stroke: var(--line) }
circle { stroke-width: 2 } .hollow { fill: none }
""" + "\n".join(
    f".s{n} {{ stroke: var(--c{n}) }} circle.f{n} {{ stroke: var(--c{n}); fill: var(--c{n}) }} "
    f"circle.h{n} {{ stroke: var(--c{n}); fill: none }} text.t{n} {{ fill: var(--c{n}) }} "
    f".k{n} {{ color: var(--c{n}) }}"
    for n in range(NUM_COLORS)
)


@dataclass(frozen=True)
class Sheet:
    """Attributes: title; lines: sentences above; heads: of the columns; rows: texts; picture: SVG, "" none."""

    title: str
    lines: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    picture: str = ""


def print_sheets(title: str, sheets: Sequence[Sheet], written: Path | None) -> None:
    """On the terminal, with the file that was written. Names come from others, so nothing is read as markup."""
    parts = list[RenderableType]([Text(title, style="dim")])
    for sheet in sheets:
        sentences = (Text(f"  {line}", style="dim") for line in sheet.lines)
        parts += [Text(sheet.title, style="bold"), *sentences, _table(sheet)]
    if written is not None:
        parts.append(Text(f"wrote {written}", style="green"))
    show(Group(*parts))


def write(path: Path, table: pd.DataFrame, title: str, sheets: Sequence[Sheet]) -> None:
    """HTML (one file without scripts or references, light and dark) or CSV by the suffix, whole or not at all."""
    if path.suffix == ".html":
        body = "\n".join([f"<h1>{escape(title)}</h1>", *map(_section, sheets)])
        content = html_page(title, STYLE, body).encode()
    else:
        content = csv_text(table).encode()
    try:
        write_bytes(path, content)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", where=str(path)) from error


def _table(sheet: Sheet) -> Table:
    table = Table(box=None, pad_edge=False)
    for place, head in enumerate(sheet.heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=place > 0)
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    return table


def _section(sheet: Sheet) -> str:
    lines = "\n".join(f'<p class="dim">{escape(line)}</p>' for line in sheet.lines)
    heads = "".join(f"<th>{escape(head)}</th>" for head in sheet.heads)
    rows = "\n".join("<tr>" + "".join(f"<td>{escape(td)}</td>" for td in row) + "</tr>" for row in sheet.rows)
    table = f'<div class="scroll"><table><tr>{heads}</tr>\n{rows}</table></div>'
    return f"<h2>{escape(sheet.title)}</h2>\n{lines}\n{sheet.picture}\n{table}"
