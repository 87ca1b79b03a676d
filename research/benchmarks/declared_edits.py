"""Every kind of known change as edits of a recorded graph, without a recording of the changed program.

    python -m research.benchmarks declared_edits

The pairs of `interventions.json` (sleeps, links, repeated ops, slow ranks, blocking and, the other way round,
overlapping), and all pairs of runs whose names differ in the link, the rows of tables, or the length of sequences
(with the batch) by itself. Batches and dtypes are in `benchmarks edits`. A's graph is edited without a look at B; the
analytical model, whose constants have not seen the workload, answers A and the edited A; measured is the change of the
step without the profiler, means over recordings. A change counts where it is larger than the spread of the recordings
of A and B together. Trivial answers: the sleep itself, all bytes over the wire, the ratio of tokens; "nothing changes"
errs by 100 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.analytic import AnalyticConstants, AnalyticPredictor
from gnnperf.core import InputError
from gnnperf.gnn.data.runs import cluster_for
from gnnperf.graph import ExecutionGraph
from gnnperf.predict.edited import predict_edited
from gnnperf.whatif import apply
from gnnperf.whatif.edit import Edited, unedited
from research.benchmarks._declared_pairs import DeclaredPair, declared_pairs
from research.benchmarks._folds import folds, median_step_us
from research.benchmarks._recorded_graphs import recorded_graphs, recordings
from research.benchmarks.edits import structure

KINDS = ("sleep", "link", "two hosts", "repeat", "slow rank", "table rows", "sequence", "blocking", "overlap")


@dataclass(frozen=True)
class Predicted:
    """One pair.

    Attributes:
        pair: which.
        equal: share of shapes of the edited graph that B has; FLOPs of the edited graph / B's.
        measured_us, noise_us: the change, and what may be chance.
        predicted_us: the predicted change; ratio_us: the predicted ratio, of A's measured step.
        trivial_us: without a model.
    """

    pair: DeclaredPair
    equal: tuple[float, float]
    measured_us: float
    noise_us: float
    predicted_us: float
    ratio_us: float
    trivial_us: float

    @property
    def is_loud(self) -> bool:
        """Whether there is a change to tell."""
        return abs(self.measured_us) > self.noise_us

    def error(self, change_us: float) -> float:
        """Relative to the measured change."""
        return abs(change_us - self.measured_us) / abs(self.measured_us)


def step_us(edited: Edited, graph: ExecutionGraph, constants: AnalyticConstants) -> float:
    """Step time of edited A, on A's hardware with the edits' changes."""
    return median_step_us(predict_edited(edited, AnalyticPredictor(constants), cluster_for(graph, None, None)))


def given(
    pair: DeclaredPair, graph: ExecutionGraph, other: ExecutionGraph, steps: dict[str, list[float]],
    constants: AnalyticConstants,
) -> Predicted:  # fmt: skip
    """The pair, from the first recording of A; B's is read for shapes only, after the prediction."""
    edited = apply(graph, pair.edits)
    before_us, after_us = (step_us(each, graph, constants) for each in (unedited(graph), edited))
    a_us, b_us = (float(np.mean(steps[run])) for run in (pair.a, pair.b))
    shapes, flops, _ = structure(edited.graph, other)
    return Predicted(
        pair, (shapes, flops), b_us - a_us, float(np.ptp(steps[pair.a]) + np.ptp(steps[pair.b])),
        after_us - before_us, (after_us / before_us - 1.0) * a_us, pair.trivial_us + (pair.trivial - 1.0) * a_us,
    )  # fmt: skip


def outcomes() -> tuple[list[Predicted], list[str]]:
    """Every pair, and what could not be determined."""
    results, graphs = recordings(), recorded_graphs()
    constants = {fold.workload: fold.shared for fold in folds(results, graphs)}
    steps: dict[str, list[float]] = {}
    first: dict[str, str] = {}
    for name, recording in results.items():
        steps.setdefault(recording.run, []).append(recording.unprofiled_us)
        first.setdefault(recording.run, name)
    of_run = {run: graphs[name] for run, name in first.items()}
    result: list[Predicted] = []
    left_out: list[str] = []
    for pair in declared_pairs(of_run):
        own = constants[results[first[pair.a]].workload]
        try:
            result.append(given(pair, of_run[pair.a], of_run[pair.b], steps, own))
        except InputError as error:
            left_out.append(f"{pair.kind}: {pair.a} -> {pair.b}: {error}")
    return result, left_out


def main() -> None:
    """Print a row per pair, then the summary."""
    results, left_out = outcomes()
    console = Console(width=170)
    console.print(_pairs(results))
    console.print(_summary(results))
    for line in left_out:
        print(f"left out: {line}")


def _pairs(results: Sequence[Predicted]) -> Table:
    table = Table("kind", "A", "B", "shapes %", "FLOPs/B", "measured us", "noise", "predicted", "trivial")
    for one in results:
        times = (one.measured_us, one.noise_us, one.predicted_us, one.trivial_us)
        table.add_row(one.pair.kind, one.pair.a, one.pair.b, f"{100 * one.equal[0]:.1f}", f"{one.equal[1]:.3f}",
                      *(f"{value:+.0f}" for value in times))  # fmt: skip
    return table


def _summary(results: Sequence[Predicted]) -> Table:
    table = Table("kind", "pairs", "shapes equal %: mean (least)", "FLOPs off %: mean (most)", "changes above noise",
                  "sign right", "error % (median): difference", "p90", "ratio", "trivial", "nothing")  # fmt: skip
    for kind in KINDS:
        group = [one for one in results if one.pair.kind == kind]
        loud = [one for one in group if one.is_loud]
        if not group:
            continue
        equal, off = (np.array([one.equal[place] for one in group]) for place in (0, 1))
        off = np.abs(off - 1.0)
        right = sum(one.predicted_us * one.measured_us > 0 for one in loud)
        errors = np.array([[one.error(us) for us in (one.predicted_us, one.ratio_us, one.trivial_us)] for one in loud])
        median = np.median(errors, axis=0) if loud else np.full(3, np.nan)
        tail = np.quantile(errors[:, 0], 0.9) if loud else np.nan
        table.add_row(kind, str(len(group)), f"{100 * equal.mean():.1f} ({100 * equal.min():.1f})",
                      f"{100 * off.mean():.2f} ({100 * off.max():.2f})", str(len(loud)), f"{right}/{len(loud)}",
                      *(f"{100 * value:.1f}" for value in (median[0], tail, *median[1:])), "100.0")  # fmt: skip
    return table


if __name__ == "__main__":
    main()
