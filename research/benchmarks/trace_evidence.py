"""What to expect on a new trace: the default prediction on the trace's own GPU, and forecasts from its other steps.

    python -m research.benchmarks.trace_evidence [--runs TEXT ...]

Prints Markdown tables over all public GPU runs with a measured step. Steps that are forecast have a period, in runs of
three steps or more; outliers are those that predict.py names. Without stalls: `stalls=remove`, of measured steps too.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.analytic import AnalyticConstants, AnalyticPredictor
from gnnperf.core import InputError, NodeType, Source, StepTimeKind
from gnnperf.graph import ExecutionGraph
from gnnperf.predict import Request, StepPrediction, outlier_steps
from gnnperf.predict.api import Setup, predicted, setup_of
from gnnperf.predict.assembly import choose_step, other_step
from gnnperf.predict.request import Stalls, TraceEvidence
from gnnperf.schedule import step_us
from gnnperf.trace.public.catalog import load_catalog
from research.benchmarks._frame import parser_of, run_main
from research.benchmarks._public_runs import Recording, imported, recordings
from research.benchmarks._results import save_result

KINDS = ("kineto", "archive", "execution-trace")
BLIND, DEFAULT = TraceEvidence.none, TraceEvidence.auto
LEAST_STEPS = 3


@dataclass(frozen=True)
class OwnGpu:
    """Predictions of one step for the GPU that it was measured on, in us."""

    run: str  # name of the run
    kind: str  # period, makespan or window (a trace without step marks)
    measured_us: float  # the step
    # blind_us, default_us: predicted without and with the measurements of the trace; blind NaN where the trace does not
    # name a device of the catalog
    blind_us: float
    default_us: float
    removed_us: float  # the default without stalls
    # blind_uncovered, uncovered: nodes that were measured and have no predicted latency; None without a blind one
    blind_uncovered: int | None
    uncovered: int


@dataclass(frozen=True)
class Forecast:
    """One step of a run, predicted from the other steps; absolute relative errors."""

    # run, step: which
    run: str
    step: int
    outlier: bool  # whether it is far from the run's median step
    error: float  # of evidence=other_steps
    copy: float  # mean error over all other steps, each taken as the prediction
    nearest: float  # error of the nearest step
    num_others: int  # steps with a period that it can be predicted from


def gpu_recordings(chosen: Sequence[str] = ()) -> Iterator[tuple[str, ExecutionGraph]]:
    """Public runs with device work and a whole step; what cannot be read is named on standard error."""
    for recording in recordings([entry for entry in load_catalog() if entry.run and entry.kind in KINDS]):
        if not chosen or any(text in recording.name for text in chosen):
            graph = _graph(recording)
            if graph is not None:
                yield recording.name, graph


def _graph(recording: Recording) -> ExecutionGraph | None:
    try:
        graph = imported(recording)[1]
        measured_us = step_us(choose_step(graph, None))
    except (InputError, OSError) as error:
        print(f"left out: {recording.name}: {getattr(error, 'what', error)}", file=sys.stderr)
        return None
    has_work = graph.runs_on_gpu and bool((graph.nodes["node_type"] == NodeType.COMPUTE).any())
    return graph if has_work and measured_us > 0 else None


def own_gpu(run: str, graph: ExecutionGraph) -> OwnGpu:
    """The step that predict.py chooses, predicted blind and by default."""
    blind = blind_prediction(graph)
    default = predicted(graph, Request(evidence=DEFAULT))
    removed = predicted(graph, Request(evidence=DEFAULT, stalls=Stalls.remove))
    return OwnGpu(
        run=run,
        kind=str(default.step_time_kind),
        measured_us=default.traced_step_time_us,
        blind_us=math.nan if blind is None else blind.step_time_us,
        default_us=default.step_time_us,
        removed_us=removed.step_time_us,
        blind_uncovered=None if blind is None else num_uncovered(blind),
        uncovered=num_uncovered(default),
    )


def blind_prediction(
    graph: ExecutionGraph, step: int | None = None, constants: AnalyticConstants | None = None
) -> StepPrediction | None:
    """The step without measurements; None: the trace does not name its device, which a blind prediction needs.

    `constants`: in place of the shipped ones.
    """
    try:
        setup = setup_of(graph, Request(step=step, evidence=BLIND))
        assert isinstance(setup, Setup), "no replay was requested"
        if constants is not None:
            setup = replace(setup, models=replace(setup.models, model=AnalyticPredictor(constants)))
        return setup.step_prediction(setup.predict())
    except InputError:
        return None


def num_uncovered(result: StepPrediction) -> int:
    """Nodes that the trace timed and the prediction does not."""
    measured = np.isfinite(result.prediction.graph.nodes["latency_us"].to_numpy(np.float64))
    return int((measured & (result.prediction.source == Source.UNCOVERED)).sum())


def forecasts(run: str, graph: ExecutionGraph, stalls: Stalls = Stalls.keep) -> list[Forecast]:
    """Every step with a period, with its stalls or without; () for runs of fewer than LEAST_STEPS steps."""
    labels = [label for label in graph.steps if label.period_us is not None]
    if len(graph.steps) < LEAST_STEPS or len(labels) < 2:
        return []
    period_us, outliers = {label.step: step_us(label) for label in labels}, outlier_steps(graph.steps)
    if stalls is Stalls.remove:
        period_us = {step: predicted(graph, Request(step=step, stalls=stalls)).step_time_us for step in period_us}
    rows = []
    for label in labels:
        us = period_us[label.step]
        result = predicted(graph, Request(step=label.step, evidence=TraceEvidence.other_steps, stalls=stalls))
        others = [abs(other / us - 1) for step, other in period_us.items() if step != label.step]
        nearest = other_step(replace(graph, steps=tuple(labels)), label)
        error = abs(result.step_time_us / us - 1)
        rows.append(Forecast(run, label.step, label.step in outliers, error, float(np.mean(others)),
                             abs(period_us[nearest.step] / us - 1), len(others)))  # fmt: skip
    return rows


def own_table(rows: Sequence[OwnGpu]) -> str:
    """Markdown: errors on the own GPU, blind and default, with stalls and without."""
    marked = [row for row in rows if row.kind != StepTimeKind.WINDOW]
    lines = [
        "| prediction | compared with | n | median | mean | p90 | max | signed mean | measured nodes uncovered |",
        "|---|---|---|---|---|---|---|---|---|",
        _own_row("blind (`evidence=none`, equal to `mode=analytic`)", "measured step", rows, "blind", "measured"),
        _own_row("blind", "measured step without stalls", rows, "blind", "removed"),
        _own_row("default, `stalls=keep`", "measured step", rows, "default", "measured"),
        _own_row("default, `stalls=remove`", "measured step", rows, "removed", "measured"),
    ]
    if marked:
        lines += [
            _own_row("blind, traces with step marks", "measured step", marked, "blind", "measured"),
            _own_row("the same", "measured step without stalls", marked, "blind", "removed"),
            _own_row("default, traces with step marks", "measured step", marked, "default", "measured"),
            _own_row("the same, `stalls=remove`", "measured step", marked, "removed", "measured"),
        ]
    return "\n".join(lines)


def _own_row(name: str, reference: str, rows: Sequence[OwnGpu], predicted: str, compared: str) -> str:
    rows = [row for row in rows if not math.isnan(getattr(row, f"{predicted}_us"))]
    ratio = np.array([getattr(row, f"{predicted}_us") / getattr(row, f"{compared}_us") for row in rows])
    counts = [row.blind_uncovered if predicted == "blind" else row.uncovered for row in rows]
    missing = sum(count for count in counts if count is not None)
    signed = 100 * (ratio - 1)
    error = np.abs(signed)
    figures = (np.median(error), error.mean(), np.quantile(error, 0.9), error.max())
    texts = " | ".join(f"{figure:.2f} %" for figure in figures)
    return f"| {name} | {reference} | {len(rows)} | {texts} | {signed.mean():+.2f} % | {missing:,} |"


def forecast_table(with_stalls: Sequence[Forecast], without: Sequence[Forecast] = ()) -> str:
    """Markdown: means per run of the forecast's errors and of copies', over runs."""
    lines = [
        "| steps | runs | forecast, median / p90 | copy of another step | nearest step | no worse than the copy | "
        "than the nearest |",
        "|---|---|---|---|---|---|---|",
    ]
    for rows, every in ((with_stalls, "all"), (without, "all, without stalls")):
        usual = [row for row in rows if not row.outlier]
        several = [row for row in usual if row.num_others > 1]
        for name, chosen in ((every, rows), ("outlier steps left out", usual),
                             ("of these, two or more steps to predict from", several)):  # fmt: skip
            if not chosen:
                continue
            errors = errors_by_run(chosen)
            ends = zip(np.median(errors, axis=0), np.quantile(errors, 0.9, axis=0), strict=True)
            texts, shares = " | ".join(f"{low:.2f} / {high:.2f} %" for low, high in ends), no_worse(errors)
            lines.append(f"| {name} | {len(errors)} | {texts} | {shares[0]:.0f} % | {shares[1]:.0f} % |")
    return "\n".join(lines)


def errors_by_run(rows: Sequence[Forecast]) -> np.ndarray:
    """[num_runs, 3] mean errors in percent: forecast, copy of another step, nearest step."""
    runs = dict.fromkeys(row.run for row in rows)
    of_run = [[(row.error, row.copy, row.nearest) for row in rows if row.run == run] for run in runs]
    return 100 * np.array([np.mean(steps, axis=0) for steps in of_run])


def no_worse(errors: np.ndarray) -> np.ndarray:
    """[2] share of runs in percent whose forecast is no worse than the copy, than the nearest step."""
    return 100 * (errors[:, :1] <= errors[:, 1:] + 1e-6).mean(axis=0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", nargs="*", default=[], metavar="TEXT", help="runs whose name contains one of these")
    args = parser.parse_args(arguments)
    own: list[OwnGpu] = []
    steps: list[Forecast] = []
    without: list[Forecast] = []
    for run, graph in gpu_recordings(args.runs):
        try:
            own.append(own_gpu(run, graph))
        except InputError as error:
            print(f"left out: {run}: {error.what}", file=sys.stderr)
            continue
        steps += forecasts(run, graph)
        without += forecasts(run, graph, Stalls.remove)
        last = own[-1]
        print(f"{run}: {100 * (last.default_us / last.measured_us - 1):+.2f} %, blind "
              f"{100 * (last.blind_us / last.measured_us - 1):+.1f} %", file=sys.stderr)  # fmt: skip
    if own:
        print(own_table(own))
        errors = [100 * np.abs([us / row.measured_us - 1 for row, us in zip(own, each, strict=True)])
                  for each in ([row.default_us for row in own], [row.blind_us for row in own])]  # fmt: skip
        save_result("trace_own_gpu", float(np.median(errors[0])), float(np.quantile(errors[0], 0.9)))
        save_result("trace_uncovered", sum(row.uncovered for row in own))
        save_result("trace_blind", float(np.nanmedian(errors[1])))
    if steps:
        print(f"\n{forecast_table(steps, without)}")
        by_run = errors_by_run(steps)
        save_result("trace_forecast", float(np.median(by_run[:, 0])))
        save_result("trace_forecast_copy", float(no_worse(by_run)[0]))
    return 0


if __name__ == "__main__":
    run_main(main)
