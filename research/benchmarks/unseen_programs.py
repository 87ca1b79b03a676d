"""The three figures of Lin et al. 2022 on programs that nothing was fitted on, with the constants that ship.

    python -m research.benchmarks unseen_programs

Prices of ops, host overheads, lags and the rates of overlap are those of conf/analytic: from datasets/cpu-gloo and the
machine's op tables. The programs of datasets/cpu-unseen judge them. Nothing is fitted on them; but those that were
looked at have been seen by choices. Three were looked at first (recurrent layers had no cost, prices were fitted on ops
that DTensor passes on); three judged that blind, and were looked at after; the rest judge what was changed since.

active: time in ops, per step and rank. step: with the host overheads and lags of other runs of the same program, as
in `unseen_workload`. shared: with those that ship. The trivial answers come from the runs of datasets/cpu-gloo.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console

from gnnperf.analytic import default_constants
from research.benchmarks._frame import run_main
from research.benchmarks._recorded_graphs import Fold, is_first, recorded_graphs, recordings
from research.benchmarks.unseen_workload import (
    by_workload,
    figures,
    labels_of,
    over_runs,
    print_means,
    rows_of,
    save_step_error,
    trivial,
)

UNSEEN = Path("datasets/cpu-unseen")
LOOKED_AT = {  # when -> programs
    "looked at first": ("graph_network", "recurrent", "unet"),
    "never looked at until they had judged once": ("autoencoder", "mixer", "two_towers"),
}
REST = "never looked at"


def main() -> None:
    """Print two tables per group of programs."""
    unseen, graphs = recordings(UNSEEN), recorded_graphs(UNSEEN)
    programs = sorted({recording.workload for recording in unseen.values()})
    folds = [Fold(program, {n: r for n, r in unseen.items() if r.workload == program}, default_constants("cpu"))
             for program in programs]  # fmt: skip
    result = pd.DataFrame([row for fold in folds for row in rows_of(fold, graphs)])
    others = partial(_from, _seen_runs())
    when = {program: group for group, programs in LOOKED_AT.items() for program in programs}
    for group, rows in result.groupby(result["workload"].map(when).fillna(REST)):
        _print(str(group), rows, others)
        if group == REST:
            save_step_error("unseen_programs", over_runs(rows))


def _print(title: str, result: pd.DataFrame, others: Callable[[pd.DataFrame, str], pd.DataFrame]) -> None:
    runs, console = over_runs(result), Console(width=140)
    print(f"\nprograms {title}")
    console.print(figures(result, runs, others))
    console.print(by_workload(runs))
    print_means(result, runs)


def _seen_runs() -> pd.DataFrame:
    """Labels and totals of the first recording of every run of the embedded data set."""
    seen, graphs = recordings(), recorded_graphs()
    return pd.DataFrame([labels_of(graphs[name], r) for name, r in seen.items() if is_first(r, seen)])


def _from(seen: pd.DataFrame, runs: pd.DataFrame, label: str) -> pd.DataFrame:
    return trivial(runs, seen, label)


if __name__ == "__main__":
    run_main(main)
