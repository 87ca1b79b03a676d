"""Tables of cells: every row's errors of nodes and of steps, by program, and what made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pandas as pd
from rich.table import Table

from gnnperf.core import console, say
from research.evaluation.record_files import codes, same_question
from research.evaluation.records import EvaluationRecord
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


def print_tables(records: Sequence[EvaluationRecord], splits: Sequence[str]) -> None:
    """Of the splits that have cells, and how many programs made them."""
    result = {split: rows for split, rows in rows_of(records).items() if split in splits}
    same_question([c for rows in result.values() for row, seeds in rows.items() if row != REPEAT for c in seeds])
    wide = console(width=WIDTH)
    for split in (s for s in splits if s in result):
        rows = in_order(result[split])
        for table in (make(split, rows) for make in (node_table, step_table, program_table, seed_table)):
            wide.print(table)
    hours = sum(record.fit_s for record in records) / 3600
    say(f"{len(records)} cells, fitted in {hours:.1f} hours of one process each.")
    made_by = codes(records)
    if len(made_by) > 1:
        say(f"Cells of {len(made_by)} versions of the learning code: {', '.join(made_by)}.")


def in_order(rows: Mapping[str, list[EvaluationRecord]]) -> dict[str, list[EvaluationRecord]]:
    """By name, the noise floor last."""
    return {row: rows[row] for row in sorted(rows, key=lambda row: (row == REPEAT, row))}


def figures_table(rows: Rows) -> pd.DataFrame:
    """One line per row and kind of label ("nodes", "steps"): Figures as shares of 1, how many seeds, seconds to fit."""
    lines = []
    for row, records in rows.items():
        fit_s = sum(record.fit_s for record in records) / len(records)
        for kind, result in (("nodes", node_figures(records)), ("steps", step_figures(records))):
            if result is not None:
                lines.append({"row": row, "of": kind, "seeds": len(records), "fit_s": fit_s, **asdict(result)})
    return pd.DataFrame(lines)


def node_table(title: str, rows: Rows) -> Table:
    """Errors of node latencies; rows that answer for whole steps only have none."""
    table = _table(f"{title}: node latencies, |predicted / measured - 1| in %", NODES)
    for row, records in rows.items():
        result = node_figures(records)
        if result is None:
            table.add_row(row, str(len(records)), *["-"] * (len(NODES) - 2))
            continue
        own = _percent(sum(record.coverage for record in records) / len(records))
        table.add_row(row, str(len(records)), str(result.count), own, _percent(result.gmae), _interval(result),
                      _percent(result.by_time), *_spread(result))  # fmt: skip
    return table


def step_table(title: str, rows: Rows) -> Table:
    """Errors of step times."""
    table = _table(f"{title}: step time, |predicted / measured - 1| in %", STEPS)
    for row, records in rows.items():
        result, fit_s = step_figures(records), sum(record.fit_s for record in records) / len(records)
        table.add_row(
            row,
            str(len(records)),
            str(result.count),
            f"{fit_s:.0f}",
            _percent(result.gmae),
            _interval(result),
            *_spread(result),
            f"{result.mean_log:.3f}",
        )
    return table


def program_table(title: str, rows: Rows) -> Table:
    """Errors of nodes and of steps by program."""
    names = workloads([record for records in rows.values() for record in records])
    table = _table(f"{title}: by program, GMAE of nodes / geomean of steps in % (steps)", ("row", *names))
    for row, records in rows.items():
        parts = [[part for record in records if (part := of_workload(record, name)) is not None] for name in names]
        table.add_row(row, *[_pair(part) if part else "-" for part in parts])
    return table


def seed_table(title: str, rows: Rows) -> Table:
    """Errors of nodes and of steps, seed by seed, of rows that have several."""
    seeds = sorted(
        {
            seed
            for records in rows.values()
            if len(records) > 1
            for record in records
            if (seed := record.origin.seed) is not None
        }
    )
    table = _table(f"{title}: by seed, GMAE of nodes / geomean of steps in % (steps)", ("row", *map(str, seeds)))
    for row, records in rows.items():
        by_seed = {record.origin.seed: record for record in records}
        if len(records) > 1:
            table.add_row(row, *[_pair([by_seed[seed]]) if seed in by_seed else "-" for seed in seeds])
    return table


def _pair(records: Sequence[EvaluationRecord]) -> str:
    nodes, steps = node_figures(records), step_figures(records)
    return f"{'-' if nodes is None else _percent(nodes.gmae)} / {_percent(steps.gmae)} ({steps.count})"


def _spread(result: Figures) -> list[str]:
    return [_percent(value) for value in (result.mean, result.median, result.p90, result.max, result.bias)]


def _interval(result: Figures) -> str:
    return f"{_percent(result.low)} - {_percent(result.high)}"


def _percent(share: float) -> str:
    if share != share:
        return "-"
    return f"{100 * share:.1f}" if abs(share) < 100 else f"{100 * share:.0e}"


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
    return table
