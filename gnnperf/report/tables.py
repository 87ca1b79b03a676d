"""Tables of a prediction as CSV, for spreadsheets and for readers of other tools."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gnnperf.core import csv_text, untrusted, write_text
from gnnperf.predict import StepPrediction
from gnnperf.report.json_document import document
from gnnperf.report.page.breakdown import occupancy
from gnnperf.report.summary import collectives, kernels, leading, nodes_table, totals, work_table


def tables(prediction: StepPrediction) -> dict[str, pd.DataFrame]:
    """File name -> table: ops, kernels, collectives, what each rank does; times are in us, summed over ranks."""
    nodes = nodes_table(prediction)
    work = work_table(nodes)
    ops = totals(work, ["op_name", "node_type", "phase", "family"])
    return {
        "ops.csv": leading(ops, len(ops)),
        "kernels.csv": kernels(work),
        "collectives.csv": collectives(work),
        "ranks.csv": occupancy(nodes, document(prediction)),
    }


def write_tables(prediction: StepPrediction, folder: Path) -> tuple[Path, ...]:
    """Write `tables` into a folder, each file whole or not at all; return their paths.

    Raises:
        InputError: the folder cannot be written.
    """
    written = []
    with untrusted.reading(folder, "cannot be written to", remedy="choose another tables=FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables(prediction).items():
            write_text(folder / name, csv_text(table))
            written.append(folder / name)
    return tuple(written)
