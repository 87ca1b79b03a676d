"""The three figures of Lin et al. 2022 on programs that nothing was fitted or chosen on, with the constants that ship.

    python -m benchmarks unseen_programs

Prices of ops, host overheads, lags and the rates of overlap are those of conf/analytic: from datasets/cpu-gloo and the
machine's op tables. datasets/cpu-unseen was recorded on the same machine after all of them were committed. Its three
programs (a U-Net denoiser, a graph network, an LSTM language model) serve nothing but this table.

active: time in ops, per step and rank. step: with the host overheads and lags of other runs of the same program, as
in `unseen_workload`. shared: with those that ship. The trivial answers come from the runs of datasets/cpu-gloo.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console

from benchmarks._folds import Fold, is_first
from benchmarks._recorded_graphs import recorded_graphs, recordings
from benchmarks._three_figures import by_workload, figures, labels_of, over_runs, print_means, rows_of, trivial
from gnnperf.analytic.constants import default_constants

UNSEEN = Path("datasets/cpu-unseen")


def main() -> None:
    """Print two tables."""
    unseen, graphs = recordings(UNSEEN), recorded_graphs(UNSEEN)
    programs = sorted({recording.workload for recording in unseen.values()})
    folds = [Fold(program, {n: r for n, r in unseen.items() if r.workload == program}, default_constants("cpu"))
             for program in programs]  # fmt: skip
    found = pd.DataFrame([row for fold in folds for row in rows_of(fold, graphs)])
    runs = over_runs(found)
    console = Console(width=140)
    console.print(figures(found, runs, partial(_from, _seen_runs())))
    console.print(by_workload(runs))
    print_means(found, runs)


def _seen_runs() -> pd.DataFrame:
    """Labels and totals of the first recording of every run of the embedded data set."""
    seen, graphs = recordings(), recorded_graphs()
    return pd.DataFrame([labels_of(graphs[name], r) for name, r in seen.items() if is_first(r, seen)])


def _from(seen: pd.DataFrame, runs: pd.DataFrame, label: str) -> pd.DataFrame:
    return trivial(runs, seen, label)


if __name__ == "__main__":
    main()
