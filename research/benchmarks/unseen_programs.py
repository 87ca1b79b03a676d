"""The three figures of Lin et al. 2022 on programs that nothing was fitted on, with the constants that ship.

    python -m research.benchmarks unseen_programs

Prices of ops, host overheads, lags and the rates of overlap are those of conf/analytic: from datasets/cpu-gloo and the
machine's op tables. The programs of datasets/cpu-unseen judge them. Nothing is fitted on them; but those that were
looked at have been seen by choices. Three were looked at first (recurrent layers had no cost, prices were fitted on ops
that DTensor passes on); three judged that blind, and were looked at after; the rest judge what was changed since.

active: time in ops, per step and rank. step: with the host overheads and lags of other runs of the same program.
shared: with those that ship. Labels: the step without the profiler, and the recorded time in ops without the
profiler's cost; means over a run's recordings.

Trivial predictions come from the runs of datasets/cpu-gloo: their median, the nearest of them, a ridge, the last two on
what a graph contains before it runs (FLOPs, bytes, ops, messages, ranks, link). The noise is one recording as the
prediction of another one of the same run.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.analytic import default_constants
from gnnperf.gnn.data.recordings import Recording
from gnnperf.graph import ExecutionGraph
from research.baselines.whole_steps import totals
from research.benchmarks import _recorded_graphs as recorded
from research.benchmarks._frame import run_main, show
from research.benchmarks._results import save_result
from research.evaluation.run_sums import interval_over_groups

UNSEEN = Path("datasets/cpu-unseen")
LOOKED_AT = {  # when -> programs
    "looked at first": ("graph_network", "recurrent", "unet"),
    "never looked at until they had judged once": ("autoencoder", "mixer", "two_towers"),
}
REST = "never looked at"
RIDGE = 1.0
FIGURES = {"active": "active_us", "step": "step_us", "step, shared overheads": "step_us"}  # -> label
MODEL = {"active": "model_active_us", "step": "model_step_us", "step, shared overheads": "model_shared_us"}


def labels_of(graph: ExecutionGraph, recording: Recording) -> dict[str, object]:
    """What a recording measured, and what is known of it before it runs."""
    rate = graph.placement.bandwidth_bytes_per_s if graph.placement else None
    return {
        "workload": recording.workload, "run": recording.run, "ranks": recording.world_size,
        "active_us": recorded.active_us(graph, graph.nodes["latency_us"].to_numpy()),
        "step_us": recording.unprofiled_us, "totals": totals(graph, rate or 1e10).tolist(),
    }  # fmt: skip


def rows_of(fold: recorded.Fold, graphs: recorded.Graphs) -> list[dict[str, object]]:
    """Labels and predictions of the fold's recordings."""
    own, result = recorded.own_overheads(fold, graphs), []
    for name, recording in fold.test.items():
        graph = graphs[name]
        shared, mine = recorded.predicted(graph, fold.shared), recorded.predicted(graph, own[name])
        result.append(labels_of(graph, recording) | {
            "model_active_us": recorded.active_us(graph, shared.latency_us),
            "model_step_us": recorded.median_step_us(mine), "model_shared_us": recorded.median_step_us(shared),
            "first_pass_us": recorded.first_pass_step_us(mine),
        })  # fmt: skip
    return result


def over_runs(result: pd.DataFrame) -> pd.DataFrame:
    """One row per run: means over its recordings."""
    numbers = result.select_dtypes("number").columns.difference(["ranks"])
    grouped = result.groupby(["workload", "run", "ranks"])
    return grouped.agg({**dict.fromkeys(numbers, "mean"), "totals": "first"}).reset_index()


def trivial(requested: pd.DataFrame, known: pd.DataFrame, label: str) -> pd.DataFrame:
    """[n] columns: constant, nearest, ridge, each from the runs `known`, for the runs `requested`."""
    x, y = np.array(known["totals"].tolist()), np.log(known[label].to_numpy(float))
    center, spread = x.mean(axis=0), x.std(axis=0) + 1e-9
    seen, inputs = (x - center) / spread, (np.array(requested["totals"].tolist()) - center) / spread
    weights = np.linalg.solve(seen.T @ seen + RIDGE * np.eye(seen.shape[1]), seen.T @ (y - y.mean()))
    nearest = np.abs(inputs[:, None] - seen[None]).sum(axis=2).argmin(axis=1)
    estimates = np.stack([np.full(len(inputs), np.median(y)), y[nearest], y.mean() + inputs @ weights], axis=1)
    return pd.DataFrame(np.exp(estimates), requested.index, ["constant", "nearest run", "ridge"])


def repeat_errors(rows: pd.DataFrame, label: str) -> tuple[np.ndarray, np.ndarray]:
    """([n] relative error of each recording as the prediction of another one of its run, [n] number of the run)."""
    pairs = rows.groupby("run")[label].apply(list)
    result = [(a / b - 1.0, run) for run, values in enumerate(pairs) for i, a in enumerate(values)
             for j, b in enumerate(values) if i != j]  # fmt: skip
    errors, runs = np.array(result).reshape(-1, 2).T
    return errors, runs


def records(errors: np.ndarray, groups: np.ndarray | None = None) -> list[str]:
    """Mean with its interval over runs, median, p90, maximum, bias, in %."""
    size = np.abs(errors)
    low, high = interval_over_groups(size, np.arange(len(size)) if groups is None else groups, np.mean)
    shown = [f"{100 * size.mean():.1f} ({100 * low:.1f} to {100 * high:.1f})"]
    return [*shown, *(f"{100 * v:.1f}" for v in (np.median(size), np.quantile(size, 0.9), size.max(), errors.mean()))]


def figures(result: pd.DataFrame, runs: pd.DataFrame, known: pd.DataFrame) -> Table:
    """The model, the trivial predictions and the noise, figure by figure."""
    table = Table("figure", "predictor", "runs", "mean %", "median", "p90", "max", "bias")
    for figure, label in FIGURES.items():
        estimates = pd.concat([runs[MODEL[figure]].rename("analytical model"), trivial(runs, known, label)], axis=1)
        if figure == "step":
            estimates.insert(1, "... without contention", runs["first_pass_us"])
        for name in estimates:
            errors = (estimates[name] / runs[label] - 1.0).to_numpy(float)
            table.add_row(figure, str(name), str(len(errors)), *records(errors))
        repeats, of_run = repeat_errors(result, label)
        noise = records(repeats, of_run) if len(repeats) else ["not recorded twice"]
        table.add_row(figure, "another recording", str(len(repeats)), *noise, end_section=True)
    return table


def save_step_error(runs: pd.DataFrame) -> None:
    """The model's mean error of the step, with its interval over runs."""
    size = (100 * (runs[MODEL["step"]] / runs["step_us"] - 1.0)).abs().to_numpy(float)
    low, high = interval_over_groups(size, np.arange(len(size)), np.mean)
    save_result("unseen_programs", float(size.mean()), interval=(float(low), float(high)))


def by_workload(runs: pd.DataFrame) -> Table:
    """The model's errors, program by program."""
    table = Table("workload", "ranks", "runs", *(f"{figure}: mean, bias %" for figure in FIGURES))
    for (workload, ranks), rows in runs.groupby(["workload", "ranks"]):
        errors: Sequence[pd.Series] = [rows[MODEL[f]] / rows[label] - 1.0 for f, label in FIGURES.items()]
        shown = [f"{100 * e.abs().mean():.1f}, {100 * e.mean():+.1f}" for e in errors]
        table.add_row(str(workload), str(ranks), str(len(rows)), *shown)
    return table


def main() -> None:
    unseen, graphs = recorded.recordings(UNSEEN), recorded.recorded_graphs(UNSEEN)
    programs = sorted({recording.workload for recording in unseen.values()})
    constants = default_constants("cpu")
    folds = [recorded.Fold(program, {n: r for n, r in unseen.items() if r.workload == program}, constants)
             for program in programs]  # fmt: skip
    result = pd.DataFrame([row for fold in folds for row in rows_of(fold, graphs)])
    seen, of_seen = recorded.recordings(), recorded.recorded_graphs()  # one recording of each run counts
    labels = pd.DataFrame([labels_of(of_seen[name], r) for name, r in seen.items() if recorded.is_first(r, seen)])
    when = {program: group for group, programs in LOOKED_AT.items() for program in programs}
    for group, rows in result.groupby(result["workload"].map(when).fillna(REST)):
        runs = over_runs(rows)
        print(f"\nprograms {group}")
        show(figures(rows, runs, labels), by_workload(runs), width=140)
        if group == REST:
            save_step_error(runs)


if __name__ == "__main__":
    run_main(main)
