"""What a few runs are worth, of a program or a machine: per number of runs every row's errors of nodes and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.core import InputError
from research.evaluation.records import EvaluationRecord
from research.evaluation.row_errors import REPEAT, node_figures, rows_of, step_figures

MACHINE = "machine"  # a second one, in place of a program
ROWS = ("analytic", "gnn", "analytic-few", "nearest-run-few", "median-step-few", "nearest-step-few", "gnn-few",
        "fine-tuned", REPEAT)  # fmt: skip


def print_tables(records: Sequence[EvaluationRecord]) -> None:
    """Nodes, then steps; the last lines of each are means over the programs."""
    result = rows_of(records)
    for split, rows in result.items():
        _check_same(split, [record for row, seeds in rows.items() if row != REPEAT for record in seeds])
    for of, name in ((_nodes, "node latencies, GMAE in %"), (_steps, "step time, geomean of the error in %")):
        table = Table(title=name)
        for title in ("program", "runs", "judged", "seeds", *ROWS):
            table.add_column(title, justify="left" if title == "program" else "right")
        figures = {split: [of(rows.get(row, ())) for row in ROWS] for split, rows in result.items()}
        for split in sorted(figures, key=_key):
            program, runs = _key(split)
            seeds = max(map(len, result[split].values()))
            table.add_row(program, str(runs), _judged(result[split]), str(seeds), *map(_percent, figures[split]))
        programs = [split for split in figures if _key(split)[0] != MACHINE]
        for runs, splits in groupby(sorted(programs, key=lambda s: _key(s)[::-1]), key=lambda s: _key(s)[1]):
            means = np.mean([figures[split] for split in splits], axis=0)
            table.add_row("mean", str(runs), "", "", *map(_percent, means))
        Console(width=190).print(table)


def _check_same(split: str, records: Sequence[EvaluationRecord]) -> None:
    """Rows of one split are of the same recordings."""
    if len({tuple(record.steps["recording"]) for record in records}) > 1:
        raise InputError("rows were judged on different recordings", where=split, remedy="delete its folder")


def _judged(rows: Mapping[str, Sequence[EvaluationRecord]]) -> str:
    """Number of recordings."""
    return str(max(len(record.steps) for row, seeds in rows.items() if row != REPEAT for record in seeds))


def _key(split: str) -> tuple[str, int]:
    """<program>-<runs>."""
    program, _, runs = split.rpartition("-")
    return program, int(runs)


def _nodes(records: Sequence[EvaluationRecord]) -> float:
    figures = node_figures(records) if records else None
    return float("nan") if figures is None else figures.gmae


def _steps(records: Sequence[EvaluationRecord]) -> float:
    return step_figures(records).gmae if records else float("nan")


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{100 * value:.1f}"
