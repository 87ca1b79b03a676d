"""Do intervals hold? Coverage and width on the test recordings of the split that a checkpoint was trained on.

    python train.py experiment=gnn data.axis=size evaluate_on=[val] out=outputs/intervals/size
    python -m research.benchmarks.intervals outputs/intervals/size/checkpoint.pt [more checkpoints]

Of nodes by kind and of steps by program, of the hybrid and of the analytical answer. Next to them the trivial answer,
calibrated on the same recordings: one pair of bounds for all nodes, one factor for all steps. The last row is noise
by itself: bounds in which nine tenths of one recording's nodes lie around those of another recording of the same run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from gnnperf.core import InputError, NodeType, Segment
from gnnperf.gnn import LEVEL, node_kinds, run_of
from gnnperf.gnn.checkpoint import Checkpoint, load_checkpoint
from gnnperf.gnn.data.prepare import PreparedData, Step, load_data
from gnnperf.gnn.evaluation.metrics import is_measured
from gnnperf.gnn.intervals.nodes import attainable, one_sided, two_sided
from gnnperf.predict import CALIBRATED, Mode, assemble, predictor_of
from gnnperf.predict.intervals import CalibratedBounds, question_about, with_interval
from gnnperf.predict.predictors import Predictors
from research.baselines.judge import repeat_record
from research.benchmarks._learned_jobs import data_config
from research.evaluation.records import Origin

ARRIVAL = f"{NodeType.COMM} {Segment.ARRIVE}"  # takes no time by definition
COLUMNS = ("", "number", "within %", "worst run %", "median high/low", "p90", "one for all: within %", "high/low")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print tables per checkpoint; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.intervals", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("checkpoints", nargs="+", type=Path)
    try:
        for path in parser.parse_args(arguments).checkpoints:
            report(load_checkpoint(path))
    except InputError as error:
        print(f"intervals: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def report(checkpoint: Checkpoint) -> None:
    """Tables of one checkpoint on the test recordings of its own split."""
    axis = str(checkpoint.provenance["split_axis"])
    if checkpoint.intervals is None:
        raise InputError("was not calibrated", where=f"the checkpoint of {axis}", remedy="train again")
    data, console = load_data(data_config(axis)), Console(width=150)
    for mode in CALIBRATED:
        (nodes, steps), (known, before) = (_predicted(checkpoint, mode, which) for which in
                                           (data.steps["test"], data.recordings))  # fmt: skip
        one = two_sided(known["score"].to_numpy(), LEVEL)
        console.print(_table(f"{axis}: nodes, mode {mode}", nodes, one))
        level = attainable(before["run"].nunique(), LEVEL)
        half = one_sided(before["score"].abs().to_numpy(), before["run"].to_numpy(), level)
        console.print(_table(f"{axis}: steps, mode {mode}", steps, (-half, half)))
    low, high = two_sided(_noise(axis, data), LEVEL)
    factors = f"{np.exp(low):.2f} to {np.exp(high):.2f} times, high/low {np.exp(high - low):.2f}"
    print(f"{axis}: nine tenths of one recording's nodes lie within {factors}, of another one's of the same run")


def _predicted(checkpoint: Checkpoint, mode: Mode, steps: Sequence[Step]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes and steps of all recordings: score = log(measured / predicted), low and high as logs of the same ratio."""
    assert checkpoint.intervals is not None
    predictor = Predictors((predictor_of(checkpoint, mode),), (CalibratedBounds(checkpoint.intervals.nodes),))
    nodes, whole = [], []
    for step in steps:
        prediction = predictor.predict(step.graph, step.cluster)
        answer = with_interval(assemble(prediction, question_about(step, mode)), checkpoint.intervals.steps[str(mode)])
        kind, measured_us = node_kinds(step.nodes), step.nodes["latency_us"].to_numpy(np.float64)
        rows = is_measured(measured_us) & (kind != ARRIVAL) & (prediction.latency_us > 0)
        columns = (measured_us, prediction.latency_low_us, prediction.latency_high_us)
        nodes.append(_scores(run_of(step.run), kind[rows], prediction.latency_us[rows], *(c[rows] for c in columns)))
        low_us, high_us = answer.step_time_interval_us or (np.nan, np.nan)
        whole.append(_scores(run_of(step.run), np.array([step.workload]), np.array([answer.step_time_us]),
                             np.array([step.step_us]), np.array([low_us]), np.array([high_us])))  # fmt: skip
    return pd.concat(nodes, ignore_index=True), pd.concat(whole, ignore_index=True)


def _scores(run: str, group: np.ndarray, predicted_us: np.ndarray, *bounds_us: np.ndarray) -> pd.DataFrame:
    """Columns run, group, score, low, high: measured, lowest and highest over predicted, in logs."""
    logs = [np.log(values / predicted_us) for values in bounds_us]
    return pd.DataFrame({"run": run, "group": group, **dict(zip(("score", "low", "high"), logs, strict=True))})


def _noise(axis: str, data: PreparedData) -> np.ndarray:
    """[n] log(measured / the same node in another recording) of the test part."""
    record = repeat_record(data, Origin(axis, "test", "noise", None, 1.0, "", "", "", ""))
    assert record.nodes is not None
    measured_us, estimate_us = (record.nodes[c].to_numpy(np.float64) for c in ("measured_us", "predicted_us"))
    both = (measured_us > 0) & (estimate_us > 0)
    return np.log(measured_us[both] / estimate_us[both])


def _table(title: str, given: pd.DataFrame, one: tuple[float, float]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name else "left")
    for group, rows in [("all", given), *given.groupby("group", sort=True)]:
        inside = (rows["score"] >= rows["low"]) & (rows["score"] <= rows["high"])  # without bounds: outside
        width = np.exp((rows["high"] - rows["low"]).dropna())
        trivial = rows["score"].between(*one)
        figures = (100 * inside.mean(), 100 * inside.groupby(rows["run"]).mean().min())
        table.add_row(str(group), str(len(rows)), *(f"{value:.1f}" for value in figures),
                      f"{width.median():.2f}", f"{width.quantile(0.9):.2f}", f"{100 * trivial.mean():.1f}",
                      f"{np.exp(one[1] - one[0]):.2f}")  # fmt: skip
    return table


if __name__ == "__main__":
    sys.exit(main())
