"""Peak memory per rank, given from a recorded step's ops and shapes, next to what the recorder counted.

    python -m research.benchmarks peak_memory

Every rank of every recording of datasets/cpu-gloo. Nothing is fitted. The rules (`gnnperf/memory`) were written looking
at the errors of first recordings of the train runs of split `run`, so its other parts are distinguished; those in no
part serve interventions and resemble train runs. The programs keep four batches, which no trace shows and which is
stated here (`batches_held=4`); with the one that a step reads, the last column. Next to it trivial predictions: what is
held between steps, twice the parameters, the median of the train runs, and the train run of the same program that is
nearest in parameters, then in inputs (not the run itself).
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.gnn.data.recordings import Recording
from gnnperf.gnn.data.splits import PARTS, read_split
from gnnperf.memory import Part, measured_peaks, peak_memory
from gnnperf.trace import read_run
from research.benchmarks._frame import percent, right_aligned, run_main, show
from research.benchmarks._recorded_graphs import DATASET, recordings
from research.benchmarks._results import save_result

BATCHES_HELD = 4  # NUM_BATCHES of the programs
ANSWERS = ("model", "held", "twice_parameters", "constant", "nearest", "one_batch")
MUST, GOAL = 0.08, 0.015


def rows_of(recording: Recording) -> Iterable[dict[str, object]]:
    """One row per rank: measured and predicted bytes, and what trivial predictions need."""
    run = read_run(recording.path)
    measured = measured_peaks(run.card)
    one = {peak.rank: peak for peak in peak_memory(run)}
    for peak in peak_memory(run, batches_held=BATCHES_HELD):
        own, parameters = measured[peak.rank], peak.parts_bytes.get(Part.PARAMETERS, 0)
        yield {
            "run": recording.run, "recording": recording.name, "program": recording.workload, "rank": peak.rank,
            "measured": own.peak_bytes, "model": own.counted_bytes(peak), "held": peak.held_between_steps_bytes,
            "twice_parameters": 2 * parameters, "one_batch": own.counted_bytes(one[peak.rank]),
            "parameters": parameters, "inputs": peak.parts_bytes.get(Part.INPUTS, 0),
        }  # fmt: skip


def _nearest(row: Mapping[Hashable, Any], train: pd.DataFrame) -> float:
    known = train[(train["program"] == row["program"]) & (train["run"] != row["run"])]
    away = pd.DataFrame(
        {name: np.abs(np.log((known[name] + 1) / (row[name] + 1))) for name in ("parameters", "inputs")}
    )
    return float(known.loc[away.sort_values(["parameters", "inputs"], kind="stable").index[0], "measured"])


def errors_table(rows: pd.DataFrame, title: str, by: str) -> Table:
    """Errors of the model by one column, and the mean errors of the other predictions."""
    others = (f"{name.replace('_', ' ')}: mean" for name in ANSWERS[1:])
    table = right_aligned(f"{title}: {by}; errors in %", "ranks", "mean", "median", "p90", "max", "bias", *others)
    for value, group in [*rows.groupby(by, sort=False), ("all", rows)]:
        error = group["model"] / group["measured"] - 1
        size = error.abs()
        figures = (size.mean(), size.median(), size.quantile(0.9), size.max())
        compared = [(group[name] / group["measured"] - 1).abs().mean() for name in ANSWERS[1:]]
        table.add_row(str(value), str(len(group)), *(percent(f) for f in figures), f"{100 * error.mean():+.1f}",
                      *(percent(f) for f in compared))  # fmt: skip
    return table


def main() -> None:
    known = recordings()
    split = read_split(DATASET, "run")
    part_of = {name: part for part in PARTS for name in getattr(split, part)}
    rows = pd.DataFrame([row for recording in known.values() for row in rows_of(recording)])
    rows["part"] = rows["recording"].map(part_of).fillna("no part")
    train = rows[rows["part"] == "train"]
    nearest = [_nearest(row, train) for row in rows.to_dict("records")]
    rows = rows.assign(constant=train["measured"].median(), nearest=nearest)
    test = rows[rows["part"] == "test"]
    save_result("peak_memory", 100 * float((test["model"] / test["measured"] - 1).abs().mean()))
    rows["part"] = pd.Categorical(rows["part"], [*PARTS, "no part"])
    show(
        errors_table(rows, f"by part of split run (must <= {percent(MUST)} %, goal {percent(GOAL)} %)", "part"),
        errors_table(rows, "all, by program", "program"),
        errors_table(rows[rows["part"] == "test"], "test, by program", "program"), width=150,
    )  # fmt: skip


if __name__ == "__main__":
    run_main(main)
