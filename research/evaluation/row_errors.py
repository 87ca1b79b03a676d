"""The figures of a row of the comparison: errors of nodes and of steps, with intervals over runs and seeds.

Every error is |predicted / measured - 1|. A node without a prediction of the row has that of the base, as in the
schedule; `coverage` is the share with one. Figures pool all seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.core import console, say
from gnnperf.gnn.evaluation.metrics import APE_FLOOR, absolute_percentage_error
from research.evaluation.records import EvaluationRecord, codes, same_question
from research.evaluation.run_sums import RunSums, node_gmae, node_gmae_by_time, step_geomean

REPEAT = "another-recording"  # the row of the noise floor: no learner, and judged pair by pair
Rows = Mapping[str, Sequence[EvaluationRecord]]  # row -> its seeds, of one split


@dataclass(frozen=True)
class Figures:
    """Errors of nodes, or of steps."""

    count: int  # nodes or steps per seed
    gmae: float  # geometric mean of the error, floored at 0.1 %
    # low, high: of it, 95 % over runs and seeds
    low: float
    high: float
    by_time: float  # of nodes, weighted by measured latency; NaN of steps
    # mean, median, p90, max: of the error
    mean: float
    median: float
    p90: float
    max: float
    mean_log: float  # mean |ln(predicted / measured)|
    bias: float  # exp(mean(ln(predicted / measured))) - 1; negative: too short


def rows_of(records: Sequence[EvaluationRecord]) -> dict[str, dict[str, list[EvaluationRecord]]]:
    """Split -> row -> its seeds, in the order of first appearance."""
    result: dict[str, dict[str, list[EvaluationRecord]]] = {}
    for record in records:
        result.setdefault(record.origin.split, {}).setdefault(record.origin.row, []).append(record)
    return result


def node_figures(records: Sequence[EvaluationRecord]) -> Figures | None:
    """Of all seeds; None: the row has no node predictions."""
    sums, by_time = node_gmae(records), node_gmae_by_time(records)
    tables = [record.nodes for record in records if record.nodes is not None]
    if sums is None or by_time is None:
        return None
    return _figures(tables, sums, by_time.value)


def step_figures(records: Sequence[EvaluationRecord]) -> Figures:
    sums = step_geomean(records)
    assert sums is not None, "every row predicts steps"
    return _figures([record.steps for record in records], sums, float("nan"))


def _figures(tables: Sequence[pd.DataFrame], sums: RunSums, by_time: float) -> Figures:
    predicted, measured = (
        np.concatenate([t[name].to_numpy(np.float64) for t in tables]) for name in ("predicted_us", "measured_us")
    )
    error = absolute_percentage_error(predicted, measured)  # [num_seeds * count]
    logs = np.log(np.maximum(predicted, APE_FLOOR * measured) / measured)  # a prediction of 0 must not be log 0
    low, high = sums.interval()
    return Figures(
        len(error) // len(tables), sums.value, low, high, by_time, float(error.mean()), float(np.median(error)),
        float(np.quantile(error, 0.9)), float(error.max()), float(np.abs(logs).mean()), float(np.expm1(logs.mean())),
    )  # fmt: skip


# Tables of cells: every row's errors of nodes and of steps, and what made them.

NODES = ("row", "seeds", "nodes", "covered", "GMAE %", "95 %", "by time", "mean", "median", "p90", "max", "bias")
STEPS = ("row", "seeds", "steps", "fit s", "geomean %", "95 %", "mean", "median", "p90", "max", "bias", "mean |log|")


WIDTH = 160  # on which every table fits


def print_tables(records: Sequence[EvaluationRecord], splits: Sequence[str]) -> None:
    """Of the splits that have cells, and how many programs made them."""
    result = {split: rows for split, rows in rows_of(records).items() if split in splits}
    same_question([c for rows in result.values() for row, seeds in rows.items() if row != REPEAT for c in seeds])
    wide = console(width=WIDTH)
    for split in (s for s in splits if s in result):
        rows = in_order(result[split])
        for table in (node_table(split, rows), step_table(split, rows)):
            wide.print(table)
    hours = sum(record.fit_s for record in records) / 3600
    say(f"{len(records)} cells, fitted in {hours:.1f} hours of one process each.")
    made_by = codes(records)
    if len(made_by) > 1:
        say(f"Cells of {len(made_by)} versions of the learning code: {', '.join(made_by)}.")


def in_order(rows: Mapping[str, list[EvaluationRecord]]) -> dict[str, list[EvaluationRecord]]:
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
    """Errors of node latencies; rows that predict whole steps only have none."""
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
    table = _table(f"{title}: step time, |predicted / measured - 1| in %", STEPS)
    for row, records in rows.items():
        result, fit_s = step_figures(records), sum(record.fit_s for record in records) / len(records)
        table.add_row(
            row, str(len(records)), str(result.count), f"{fit_s:.0f}", _percent(result.gmae), _interval(result),
            *_spread(result), f"{result.mean_log:.3f}",
        )  # fmt: skip
    return table


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
