"""Tables of cells: every row's errors of nodes and of steps, by program, and what made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pandas as pd
from rich.table import Table

from gnnperf.core.output.terminal import console, say
from research.evaluation.cell_files import codes, same_question
from research.evaluation.cells import Cell
from research.evaluation.row_errors import (
    REPEAT,
    Figures,
    Rows,
    node_figures,
    of_workload,
    rows_of,
    step_figures,
    workloads,
)

NODES = ("row", "seeds", "nodes", "answered", "GMAE %", "95 %", "by time", "mean", "median", "p90", "max", "bias")
STEPS = ("row", "seeds", "steps", "fit s", "geomean %", "95 %", "mean", "median", "p90", "max", "bias", "mean |log|")


WIDTH = 160  # on which every table fits


def print_tables(cells: Sequence[Cell], splits: Sequence[str]) -> None:
    """Of the splits that have cells, and how many programs made them."""
    found = {split: rows for split, rows in rows_of(cells).items() if split in splits}
    same_question([c for rows in found.values() for row, seeds in rows.items() if row != REPEAT for c in seeds])
    wide = console(width=WIDTH)
    for split in (s for s in splits if s in found):
        rows = in_order(found[split])
        for table in (make(split, rows) for make in (node_table, step_table, program_table, seed_table)):
            wide.print(table)
    say(f"{len(cells)} cells, fitted in {sum(cell.fit_s for cell in cells) / 3600:.1f} hours of one process each.")
    made_by = codes(cells)
    if len(made_by) > 1:
        say(f"Cells of {len(made_by)} versions of the learning code: {', '.join(made_by)}.")


def in_order(rows: Mapping[str, list[Cell]]) -> dict[str, list[Cell]]:
    """By name, the noise floor last."""
    return {row: rows[row] for row in sorted(rows, key=lambda row: (row == REPEAT, row))}


def figures_table(rows: Rows) -> pd.DataFrame:
    """One line per row and kind of label ("nodes", "steps"): Figures as shares of 1, how many seeds, seconds to fit."""
    lines = []
    for row, cells in rows.items():
        fit_s = sum(cell.fit_s for cell in cells) / len(cells)
        for kind, found in (("nodes", node_figures(cells)), ("steps", step_figures(cells))):
            if found is not None:
                lines.append({"row": row, "of": kind, "seeds": len(cells), "fit_s": fit_s, **asdict(found)})
    return pd.DataFrame(lines)


def node_table(title: str, rows: Rows) -> Table:
    """Errors of node latencies; rows that answer for whole steps only have none."""
    table = _table(f"{title}: node latencies, |predicted / measured - 1| in %", NODES)
    for row, cells in rows.items():
        found = node_figures(cells)
        if found is None:
            table.add_row(row, str(len(cells)), *["-"] * (len(NODES) - 2))
            continue
        own = _percent(sum(cell.coverage for cell in cells) / len(cells))
        table.add_row(row, str(len(cells)), str(found.count), own, _percent(found.gmae), _interval(found),
                      _percent(found.by_time), *_spread(found))  # fmt: skip
    return table


def step_table(title: str, rows: Rows) -> Table:
    """Errors of step times."""
    table = _table(f"{title}: step time, |predicted / measured - 1| in %", STEPS)
    for row, cells in rows.items():
        found, fit_s = step_figures(cells), sum(cell.fit_s for cell in cells) / len(cells)
        table.add_row(row, str(len(cells)), str(found.count), f"{fit_s:.0f}", _percent(found.gmae), _interval(found),
                      *_spread(found), f"{found.mean_log:.3f}")  # fmt: skip
    return table


def program_table(title: str, rows: Rows) -> Table:
    """Errors of nodes and of steps by program."""
    names = workloads([cell for cells in rows.values() for cell in cells])
    table = _table(f"{title}: by program, GMAE of nodes / geomean of steps in % (steps)", ("row", *names))
    for row, cells in rows.items():
        parts = [[part for cell in cells if (part := of_workload(cell, name)) is not None] for name in names]
        table.add_row(row, *[_pair(part) if part else "-" for part in parts])
    return table


def seed_table(title: str, rows: Rows) -> Table:
    """Errors of nodes and of steps, seed by seed, of rows that have several."""
    seeds = sorted(
        {seed for cells in rows.values() if len(cells) > 1 for cell in cells if (seed := cell.origin.seed) is not None}
    )
    table = _table(f"{title}: by seed, GMAE of nodes / geomean of steps in % (steps)", ("row", *map(str, seeds)))
    for row, cells in rows.items():
        by_seed = {cell.origin.seed: cell for cell in cells}
        if len(cells) > 1:
            table.add_row(row, *[_pair([by_seed[seed]]) if seed in by_seed else "-" for seed in seeds])
    return table


def _pair(cells: Sequence[Cell]) -> str:
    nodes, steps = node_figures(cells), step_figures(cells)
    return f"{'-' if nodes is None else _percent(nodes.gmae)} / {_percent(steps.gmae)} ({steps.count})"


def _spread(found: Figures) -> list[str]:
    return [_percent(value) for value in (found.mean, found.median, found.p90, found.max, found.bias)]


def _interval(found: Figures) -> str:
    return f"{_percent(found.low)} - {_percent(found.high)}"


def _percent(share: float) -> str:
    if share != share:
        return "-"
    return f"{100 * share:.1f}" if abs(share) < 100 else f"{100 * share:.0e}"


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
    return table
