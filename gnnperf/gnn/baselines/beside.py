"""What was trained beside what nothing was learned for: cells on disk, tables in the log and on the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gnnperf.core.output.terminal import console
from gnnperf.core.progress import each
from gnnperf.gnn.baselines.judge import Fit, fitted, is_repeated, judged_cell, learning_code, repeat_cell
from gnnperf.gnn.baselines.rows import TRIVIAL
from gnnperf.gnn.data.config import DataConfig
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.evaluation.cell_files import write_cell
from gnnperf.gnn.evaluation.cells import Cell, Origin
from gnnperf.gnn.evaluation.row_errors import REPEAT, Rows, node_figures, step_figures
from gnnperf.gnn.evaluation.row_tables import WIDTH, figures_table, in_order, node_table, step_table
from gnnperf.gnn.training.curves import Log

USUAL = {"residual_target": True, "bucket_bytes": None}  # what data are told unless a row says otherwise

Judged = Mapping[str, Rows]  # part -> row -> its one cell


def variant_of(config: DataConfig) -> str:
    """What these data were told beside those of the table's other rows; "" nothing."""
    told = {name: getattr(config, name) for name in USUAL}
    return ", ".join(f"{name}={value}" for name, value in told.items() if value != USUAL[name])


def judged_beside(fits: Mapping[str, Fit], data: PreparedData, parts: Sequence[str], variant: str) -> Judged:
    """Rows of every part that has runs: what was fitted, the trivial answers, and where runs were repeated the floor.

    Args:
        fits: row -> what was trained.
        data: what it was trained on.
        parts: of the split.
        variant: variant_of the data's configuration.

    Raises:
        InputError: an answer that is not finite.
    """
    fits = {**fits, **{row: fitted(learner, data, None) for row, learner in TRIVIAL.items()}}
    return {part: _rows(fits, data, part, variant) for part in parts if data.steps[part]}


def keep_cells(judged: Judged, folder: Path) -> None:
    """Write <folder>/<part>/<split>/<row>/<seed>.parquet, which `gnnperf improvement <folder>/<part>` reads."""
    for part, rows in judged.items():
        for cells in rows.values():
            for cell in cells:
                write_cell(cell, folder / part)


def show_rows(judged: Judged, log: Log) -> None:
    """Print errors of nodes and of steps part by part, and leave them in the log."""
    wide = console(width=WIDTH)
    for part, rows in judged.items():
        title = f"{_split(rows)}, {part}"
        for table in (node_table(title, rows), step_table(title, rows)):
            wide.print(table)
        log.table(f"{part}_rows", figures_table(rows))


def validation_error(judged: Judged, row: str) -> float:
    """GMAE of a row's node latencies on the validation runs; of one that answers for whole steps only, of those."""
    cells = judged["val"][row]
    return (node_figures(cells) or step_figures(cells)).gmae


def _split(rows: Rows) -> str:
    """Their axis."""
    return next(cells[0].origin.split for cells in rows.values())


def _rows(fits: Mapping[str, Fit], data: PreparedData, part: str, variant: str) -> dict[str, list[Cell]]:
    def origin(row: str, seed: int | None, told: str) -> Origin:
        return Origin(data.split.axis, part, row, seed, 1.0, variant, data.fingerprint, told, learning_code())

    found = {row: [judged_cell(fit, data, origin(row, fit.seed, fit.told))]
             for row, fit in each(list(fits.items()), f"judging, {part}", "rows")}  # fmt: skip
    if is_repeated(data, part):
        found[REPEAT] = [repeat_cell(data, origin(REPEAT, None, "another recording"))]
    return in_order(found)
