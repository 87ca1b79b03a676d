"""The three figures of Lin et al. 2022 (section 5) on the embedded data set, on workloads left out of the fits.

    python -m benchmarks unseen_workload

active: time in ops, per step and rank. step: with the host overheads of other runs of the same workload. shared: with
the overheads of the other workloads only. All other constants (prices of ops, lags) come from the other workloads and
from the machine's op tables. Both steps are scheduled with what overlaps; its two rates were fitted on the part train
of the split `run`, which has all workloads. A workload is a program: dlrm, transformer, moe, cnn, rl, random graphs.
Labels: the step without the profiler, and the recorded time in ops without the profiler's cost; means over a run's
recordings.

Beside it the trivial answers on the same runs: the median of the other workloads' runs, the nearest of them, a ridge,
the last two on what a graph says before it runs (FLOPs, bytes, ops, messages, ranks, link); and the noise: what one
recording says of another of the same run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks._folds import (
    Fold,
    Graphs,
    active_us,
    first_pass_step_us,
    folds,
    median_step_us,
    own_overheads,
    predicted,
)
from benchmarks._recorded_graphs import recorded_graphs, recordings
from gnnperf.evaluate.resample import interval_over_groups
from gnnperf.graph.execution_graph import ExecutionGraph

RIDGE = 1.0
FIGURES = {"active": "active_us", "step": "step_us", "step, shared overheads": "step_us"}  # -> label
MODEL = {"active": "model_active_us", "step": "model_step_us", "step, shared overheads": "model_shared_us"}


def totals(graph: ExecutionGraph, link_bytes_per_s: float) -> list[float]:
    """[8] logs of what a graph says before it runs, per step and rank."""
    nodes, parts = graph.nodes, len(graph.steps) * len(graph.ranks)
    types = nodes["node_type"].astype(str).to_numpy()
    sums = [nodes["flops"].sum(), nodes["bytes"].sum(), nodes["message_bytes"].sum(), *(
        float((types == kind).sum()) for kind in ("compute", "host", "collective"))]  # fmt: skip
    return [*np.log1p(np.array(sums) / parts), np.log(len(graph.ranks)), np.log(link_bytes_per_s)]


def rows_of(fold: Fold, graphs: Graphs) -> list[dict[str, object]]:
    """Labels, answers and totals of the fold's recordings."""
    own, found = own_overheads(fold, graphs), []
    for name, recording in fold.test.items():
        graph = graphs[name]
        shared, mine = predicted(graph, fold.shared), predicted(graph, own[name])
        rate = graph.placement.bandwidth_bytes_per_s if graph.placement else None
        found.append({
            "workload": fold.workload, "run": recording.run, "ranks": recording.world_size,
            "active_us": active_us(graph, graph.nodes["latency_us"].to_numpy()), "step_us": recording.unprofiled_us,
            "model_active_us": active_us(graph, shared.latency_us), "model_step_us": median_step_us(mine),
            "model_shared_us": median_step_us(shared), "first_pass_us": first_pass_step_us(mine),
            "uncovered": float(np.isnan(shared.latency_us).mean()), "totals": totals(graph, rate or 1e10),
        })  # fmt: skip
    return found


def trivial(rows: pd.DataFrame, label: str) -> pd.DataFrame:
    """[n] columns: constant, nearest, ridge, each from the runs of other workloads."""
    found = pd.DataFrame(np.nan, rows.index, ["constant", "nearest run", "ridge"])
    inputs, logs = np.array(rows["totals"].tolist()), np.log(rows[label].to_numpy(float))
    for workload in rows["workload"].unique():
        test = (rows["workload"] == workload).to_numpy()
        x, y = inputs[~test], logs[~test]
        center, spread = x.mean(axis=0), x.std(axis=0) + 1e-9
        seen, asked = (x - center) / spread, (inputs[test] - center) / spread
        weights = np.linalg.solve(seen.T @ seen + RIDGE * np.eye(seen.shape[1]), seen.T @ (y - y.mean()))
        nearest = np.abs(asked[:, None] - seen[None]).sum(axis=2).argmin(axis=1)
        answers = np.stack([np.full(len(asked), np.median(y)), y[nearest], y.mean() + asked @ weights], axis=1)
        found.loc[test] = np.exp(answers)
    return found


def repeat_errors(rows: pd.DataFrame, label: str) -> tuple[np.ndarray, np.ndarray]:
    """([n] relative error of each recording as the answer for another one of its run, [n] number of the run)."""
    pairs = rows.groupby("run")[label].apply(list)
    found = [(a / b - 1.0, run) for run, values in enumerate(pairs) for i, a in enumerate(values)
             for j, b in enumerate(values) if i != j]  # fmt: skip
    errors, runs = np.array(found).T
    return errors, runs


def cells(errors: np.ndarray, groups: np.ndarray | None = None) -> list[str]:
    """Mean with its interval over runs, median, p90, maximum, bias, in %."""
    size = np.abs(errors)
    low, high = interval_over_groups(size, np.arange(len(size)) if groups is None else groups, np.mean)
    shown = [f"{100 * size.mean():.1f} ({100 * low:.1f} to {100 * high:.1f})"]
    return [*shown, *(f"{100 * v:.1f}" for v in (np.median(size), np.quantile(size, 0.9), size.max(), errors.mean()))]


def main() -> None:
    """Print two tables."""
    all_recordings, graphs = recordings(), recorded_graphs()
    found = pd.DataFrame([row for fold in folds(all_recordings, graphs) for row in rows_of(fold, graphs)])
    numbers = found.select_dtypes("number").columns.difference(["ranks"])
    runs = found.groupby(["workload", "run", "ranks"]).agg(
        {**dict.fromkeys(numbers, "mean"), "totals": "first"}
    ).reset_index()  # fmt: skip
    console = Console(width=140)
    console.print(_figures(found, runs))
    console.print(_by_workload(runs))
    print(f"nodes without an answer, which count as no time: {found['uncovered'].mean():.2%}")
    for figure, label in FIGURES.items():
        errors = (runs[MODEL[figure]] / runs[label] - 1.0).abs()
        print(f"{figure}: mean over the programs' means {errors.groupby(runs['workload']).mean().mean():.1%}")


def _figures(found: pd.DataFrame, runs: pd.DataFrame) -> Table:
    table = Table("figure", "answer", "runs", "mean %", "median", "p90", "max", "bias")
    for figure, label in FIGURES.items():
        answers = pd.concat([runs[MODEL[figure]].rename("analytical model"), trivial(runs, label)], axis=1)
        if figure == "step":
            answers.insert(1, "... without contention", runs["first_pass_us"])
        for name in answers:
            errors = (answers[name] / runs[label] - 1.0).to_numpy(float)
            table.add_row(figure, str(name), str(len(errors)), *cells(errors))
        repeats, of_run = repeat_errors(found, label)
        table.add_row(figure, "another recording", str(len(repeats)), *cells(repeats, of_run), end_section=True)
    return table


def _by_workload(runs: pd.DataFrame) -> Table:
    table = Table("workload", "ranks", "runs", *(f"{figure}: mean, bias %" for figure in FIGURES))
    for (workload, ranks), rows in runs.groupby(["workload", "ranks"]):
        errors: Sequence[pd.Series] = [rows[MODEL[f]] / rows[label] - 1.0 for f, label in FIGURES.items()]
        shown = [f"{100 * e.abs().mean():.1f}, {100 * e.mean():+.1f}" for e in errors]
        table.add_row(str(workload), str(ranks), str(len(rows)), *shown)
    return table


if __name__ == "__main__":
    main()
