"""The three figures of Lin et al. 2022 (section 5) on the embedded data set, on workloads left out of the fits.

    python -m research.benchmarks unseen_workload

active: time in ops, per step and rank. step: with the host overheads of other runs of the same workload. shared: with
the overheads of the other workloads only. All other constants (prices of ops, lags) come from the other workloads and
from the machine's op tables. Both steps are scheduled with what overlaps; its two rates were fitted on the part train
of the split `run`, which has all workloads. A workload is a program: dlrm, transformer, moe, cnn, rl, random graphs.
Labels: the step without the profiler, and the recorded time in ops without the profiler's cost; means over a run's
recordings.

Next to it the trivial answers on the same runs: the median of the other workloads' runs, the nearest of them, a ridge,
the last two on what a graph says before it runs (FLOPs, bytes, ops, messages, ranks, link); and the noise: what one
recording says of another of the same run.
"""

from __future__ import annotations

import pandas as pd
from rich.console import Console

from research.benchmarks._folds import folds
from research.benchmarks._recorded_graphs import recorded_graphs, recordings
from research.benchmarks._three_figures import by_workload, figures, over_runs, print_means, rows_of, trivial


def from_other_workloads(runs: pd.DataFrame, label: str) -> pd.DataFrame:
    """[n] columns: each workload's trivial answers, from the runs of the others."""
    parts = [trivial(rows, runs[runs["workload"] != workload], label) for workload, rows in runs.groupby("workload")]
    return pd.concat(parts).loc[runs.index]


def main() -> None:
    """Print two tables."""
    all_recordings, graphs = recordings(), recorded_graphs()
    result = pd.DataFrame([row for fold in folds(all_recordings, graphs) for row in rows_of(fold, graphs)])
    runs = over_runs(result)
    console = Console(width=140)
    console.print(figures(result, runs, from_other_workloads))
    console.print(by_workload(runs))
    print_means(result, runs)


if __name__ == "__main__":
    main()
