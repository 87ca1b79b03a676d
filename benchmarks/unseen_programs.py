"""The three figures of Lin et al. 2022 on programs that nothing was fitted on, with the constants that ship.

    python -m benchmarks unseen_programs

Prices of ops, host overheads, lags and the rates of overlap are those of conf/analytic: from datasets/cpu-gloo and the
machine's op tables. Six programs of datasets/cpu-unseen judge them. Three were looked at once and showed two general
faults, which were repaired (recurrent layers had no cost, prices were fitted on ops that DTensor passes on); the other
three were recorded afterwards, and nothing was changed after they were looked at.

active: time in ops, per step and rank. step: with the host overheads and lags of other runs of the same program, as
in `unseen_workload`. shared: with those that ship. The trivial answers come from the runs of datasets/cpu-gloo.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console

from benchmarks._folds import Fold, is_first
from benchmarks._recorded_graphs import recorded_graphs, recordings
from benchmarks._three_figures import by_workload, figures, labels_of, over_runs, print_means, rows_of, trivial
from gnnperf.analytic.constants import default_constants

UNSEEN = Path("datasets/cpu-unseen")
LOOKED_AT = ("graph_network", "recurrent", "unet")


def main() -> None:
    """Print two tables."""
    unseen, graphs = recordings(UNSEEN), recorded_graphs(UNSEEN)
    programs = sorted({recording.workload for recording in unseen.values()})
    folds = [Fold(program, {n: r for n, r in unseen.items() if r.workload == program}, default_constants("cpu"))
             for program in programs]  # fmt: skip
    found = pd.DataFrame([row for fold in folds for row in rows_of(fold, graphs)])
    looked_at = found["workload"].isin(LOOKED_AT)
    others = partial(_from, _seen_runs())
    _print("looked at once, before repairs", found[looked_at], others)
    _print("never looked at", found[~looked_at], others)


def _print(title: str, found: pd.DataFrame, others: Callable[[pd.DataFrame, str], pd.DataFrame]) -> None:
    runs, console = over_runs(found), Console(width=140)
    print(f"\nprograms {title}")
    console.print(figures(found, runs, others))
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
