"""Tables of numbers on a console."""

from __future__ import annotations

from rich.table import Table


def right_aligned(title: str, *names: str) -> Table:
    """A table whose first column names the row; the others hold numbers."""
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    return table
