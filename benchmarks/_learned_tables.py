"""Tables of cells: per split every row's errors of nodes and of steps, by workload, and what made them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gnnperf.baselines.table import codes
from gnnperf.evaluate.cell_files import same_question
from gnnperf.evaluate.cells import Cell
from gnnperf.evaluate.improvement_cli import REPEAT
from gnnperf.evaluate.row_errors import Figures, node_figures, of_workload, rows_of, step_figures, workloads

NODES = ("row", "seeds", "nodes", "answered", "GMAE %", "95 %", "by time", "mean", "median", "p90", "max", "bias")
STEPS = ("row", "seeds", "steps", "fit s", "geomean %", "95 %", "mean", "median", "p90", "max", "bias", "mean |log|")


def print_tables(cells: Sequence[Cell], splits: Sequence[str]) -> None:
    """Of the splits that have cells, and how many programs made them."""
    found = {split: rows for split, rows in rows_of(cells).items() if split in splits}
    same_question([c for rows in found.values() for row, seeds in rows.items() if row != REPEAT for c in seeds])
    console = Console(width=160)
    for split in (s for s in splits if s in found):
        rows = {row: found[split][row] for row in sorted(found[split], key=_rank)}
        console.print(_nodes(split, rows))
        console.print(_steps(split, rows))
        console.print(_by_workload(split, rows))
    made_by = codes(cells)
    if len(made_by) > 1:
        print(f"Cells of {len(made_by)} versions of the learning code: {', '.join(made_by)}.")


def _rank(row: str) -> tuple[bool, str]:
    """By name, the noise floor last."""
    return row == REPEAT, row


def _nodes(split: str, rows: dict[str, list[Cell]]) -> Table:
    table = _table(f"{split}: node latencies, |predicted / measured - 1| in %", NODES)
    for row, cells in rows.items():
        found = node_figures(cells)
        if found is None:
            table.add_row(row, str(len(cells)), *["-"] * (len(NODES) - 2))
            continue
        own = _percent(sum(cell.coverage for cell in cells) / len(cells))
        table.add_row(row, str(len(cells)), str(found.count), own, _percent(found.gmae), _interval(found),
                      _percent(found.by_time), *_spread(found))  # fmt: skip
    return table


def _steps(split: str, rows: dict[str, list[Cell]]) -> Table:
    table = _table(f"{split}: step time, |predicted / measured - 1| in %", STEPS)
    for row, cells in rows.items():
        found, fit_s = step_figures(cells), sum(cell.fit_s for cell in cells) / len(cells)
        table.add_row(row, str(len(cells)), str(found.count), f"{fit_s:.0f}", _percent(found.gmae), _interval(found),
                      *_spread(found), f"{found.mean_log:.3f}")  # fmt: skip
    return table


def _by_workload(split: str, rows: dict[str, list[Cell]]) -> Table:
    names = workloads([cell for cells in rows.values() for cell in cells])
    table = _table(f"{split}: by program, GMAE of nodes / geomean of steps in % (steps)", ("row", *names))
    for row, cells in rows.items():
        parts = [[part for cell in cells if (part := of_workload(cell, name)) is not None] for name in names]
        table.add_row(row, *[_pair(part) if part else "-" for part in parts])
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
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
    return table
