"""Tables with sentences and a picture: on the terminal, as an HTML page, and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gnnperf.core import csv_text, untrusted, write_text
from gnnperf.report.console import show
from gnnperf.report.page import markup

SUFFIXES = (".html", ".csv")
NUM_COLORS = 8  # classes c0, c1, ... of report.css


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
        table = Table(box=None, pad_edge=False)
        for place, head in enumerate(sheet.heads):
            table.add_column(head, justify="right" if place else "left", no_wrap=place > 0)
        for row in sheet.rows:
            table.add_row(*map(Text, row))
        parts += [Text(sheet.title, style="bold"), *(Text(f"  {line}", style="dim") for line in sheet.lines), table]
    if written is not None:
        parts.append(Text(f"wrote {written}", style="green"))
    show(Group(*parts))


def write(path: Path, table: pd.DataFrame, title: str, sheets: Sequence[Sheet]) -> None:
    """HTML (one file without scripts or references, light and dark) or CSV by the suffix, whole or not at all."""
    content = markup.page(title, *map(_section, enumerate(sheets))) if path.suffix == ".html" else csv_text(table)
    with untrusted.reading(path, "cannot be written"):
        write_text(path, content)


def _section(numbered: tuple[int, Sheet]) -> markup.Markup:
    number, sheet = numbered
    rows = [tuple(map(markup.Td, row)) for row in sheet.rows]
    table = markup.table(sheet.title, [head or "\N{NO-BREAK SPACE}" for head in sheet.heads], rows)
    return markup.section(f"sheet-{number}", sheet.title, *map(markup.note, sheet.lines), sheet.picture, table)
