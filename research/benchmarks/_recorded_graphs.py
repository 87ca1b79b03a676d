"""Constants of the analytical model that have not seen a workload, and the graphs they predict."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnperf.analytic import (
    AnalyticConstants,
    AnalyticPredictor,
    fit_constants,
    fit_host_overheads,
    fit_lags,
    read_calibrated_calls,
)
from gnnperf.core import WORK_TYPES
from gnnperf.gnn.data.recordings import Recording, read_recordings
from gnnperf.gnn.data.runs import cluster_for
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.schedule import schedule, schedule_with_contention
from research.evaluation.loading import as_recorded, machine_costs, without_profiler_cost

DATASET = Path("datasets/cpu-gloo")
OP_TABLES = tuple(Path(f"datasets/{name}/ops.parquet") for name in ("cpu-ops", "cpu-lookups", "cpu-updates"))
CACHE = Path("~/.cache/gnnperf").expanduser()


def recordings(dataset: Path = DATASET) -> dict[str, Recording]:
    """Name -> recording, of all that are complete."""
    return {r.name: r for repeats in read_recordings(dataset).values() for r in repeats.values()}


def first_recordings(dataset: Path) -> dict[str, Recording]:
    """Run -> its first recording."""
    return {run: repeats[min(repeats)] for run, repeats in read_recordings(dataset).items()}


def recorded_graphs(dataset: Path = DATASET) -> dict[str, ExecutionGraph]:
    """Name of the recording -> its graph as predictors get it."""
    result = recordings(dataset)
    load = without_profiler_cost(as_recorded(CACHE), machine_costs(result.values()))
    return {name: load(recording).for_predictors() for name, recording in result.items()}


Graphs = Mapping[str, ExecutionGraph]  # name of the recording -> graph
Recordings = Mapping[str, Recording]


@dataclass(frozen=True)
class Fold:
    """One workload left out."""

    workload: str
    test: Recordings
    shared: AnalyticConstants


def folds(recordings: Recordings, graphs: Graphs) -> Iterable[Fold]:
    """Every workload left out once; a run's first recording trains."""
    calibrated = read_calibrated_calls(OP_TABLES)
    for workload in sorted({r.workload for r in recordings.values()}):
        train = [graphs[name] for name, r in recordings.items() if r.workload != workload and is_first(r, recordings)]
        device = cluster_for(train[0], None, None).device
        test = {name: r for name, r in recordings.items() if r.workload == workload}
        yield Fold(workload, test, fit_constants(train, device, calibrated))


def is_first(recording: Recording, recordings: Recordings) -> bool:
    """Whether no earlier repeat of the run was recorded."""
    return not any(f"{recording.run}/{k}" in recordings for k in range(1, recording.repeat))


def own_overheads(fold: Fold, graphs: Graphs) -> dict[str, AnalyticConstants]:
    """Name of a test recording -> the fold's constants with host overheads and lags of OTHER runs of its workload.

    Runs are dealt out in turn to two halves; each half's overheads serve the other.
    """
    runs = sorted({r.run for r in fold.test.values()})
    half = {run: place % 2 for place, run in enumerate(runs)}
    fitted = []
    for which in (0, 1):
        own = [graphs[name] for name, r in fold.test.items() if half[r.run] != which]
        own = [g for g in own if g.placement is None or not g.placement.shares_cores] or own
        fitted.append(fit_lags(own, "cpu", fit_host_overheads(own, fold.shared)))
    return {name: fitted[half[r.run]] for name, r in fold.test.items()}


def predicted(graph: ExecutionGraph, constants: AnalyticConstants) -> Prediction:
    """Analytical prediction of a whole window."""
    return AnalyticPredictor(constants).predict(graph, cluster_for(graph, None, None))


def median_step_us(result: Prediction) -> float:
    """Median period of the window's steps after the first, as scheduled with what overlaps."""
    latency_us, isolated = np.nan_to_num(result.latency_us), result.isolated
    assert isolated is not None, "the analytical model predicts isolated latencies"
    scheduled = schedule_with_contention(result.graph, latency_us, result.lag_us, isolated)
    return float(np.median(periods_us(result.graph, scheduled.schedule.end_us)))


def first_pass_step_us(result: Prediction) -> float:
    """The same without the second pass."""
    scheduled = schedule(result.graph, np.nan_to_num(result.latency_us), result.lag_us)
    return float(np.median(periods_us(result.graph, scheduled.end_us)))


def periods_us(graph: ExecutionGraph, end_us: np.ndarray) -> np.ndarray:
    """[num_steps - 1] between the last ends of steps; the first step itself where there is no other."""
    work = graph.nodes["node_type"].isin([str(t) for t in WORK_TYPES]).to_numpy()
    step = graph.nodes["step"].to_numpy()
    done = np.array([end_us[work & (step == s.step)].max() for s in graph.steps])  # [num_steps]
    between: np.ndarray = np.diff(np.maximum.accumulate(done), prepend=0.0)
    return between[1:] if len(between) > 1 else between


def active_us(graph: ExecutionGraph, latency_us: np.ndarray) -> float:
    """Time in ops per step and rank: what Lin et al. 2022 call the active time of a device."""
    nodes = graph.nodes
    works = (nodes["node_type"].isin(["compute", "memory"]) & nodes["step"].ge(0)).to_numpy()
    return float(np.nansum(latency_us[works])) / len(graph.steps) / len(graph.ranks)
