"""What a recorded run tells: one typical step, its nodes with mean latencies, and how long the step takes.

Steps of one run have the same features and differ by chance, so a node's label is its mean over them. Recordings of one
run likewise become one example where they train or choose; where they judge, each stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnperf.data.clusters import cluster_for
from gnnperf.errors import InputError
from gnnperf.evaluate.noise_floor import typical_step
from gnnperf.evaluate.recordings import CARD, read_json
from gnnperf.graph import load_graph
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec
from gnnperf.schedule.align import align


@dataclass(frozen=True)
class RunGraph:
    """One recording of a data set.

    Attributes:
        run: its name in the split, <run> or <run>/<repeat>.
        graph: all its steps.
        cluster: the hardware it ran on.
        workload: which program it is, as its card says; "" unknown.
    """

    run: str
    graph: ExecutionGraph
    cluster: ClusterSpec
    workload: str = ""


@dataclass(frozen=True)
class RunStep:
    """The typical step of a run.

    Attributes:
        run: the run's name.
        graph: one step without edges inferred from time; `latency_us` of its nodes are means over the run's steps.
        cluster: the hardware it ran on.
        step_us: measured: the median period of the run's steps; of a trace without periods the median makespan.
        workload: which program it is; "" unknown.
    """

    run: str
    graph: ExecutionGraph
    cluster: ClusterSpec
    step_us: float
    workload: str = ""


def run_of(recording: str) -> str:
    """<run>/<repeat> -> run; another name as it is."""
    run, _, repeat = recording.rpartition("/")
    return run if run and repeat.isdecimal() else recording


def read_runs(
    root: Path, cache_dir: Path, hardware: DeviceSpec | None, cluster: ClusterSpec | None
) -> Callable[[str], RunGraph]:
    """Name of a run -> what was recorded.

    The profiler's cost stays in it: taken out as a mean per event, it would leave nothing of short segments.

    Args:
        root: folder with one folder per run.
        cache_dir: where graphs are kept.
        hardware: the device that all runs ran on; None: each trace's own.
        cluster: their links and hosts; None: the default of the device.
    """

    def read(name: str) -> RunGraph:
        graph = load_graph(root / name, cache_dir)
        return RunGraph(name, graph, cluster_for(graph, hardware, cluster), workload_of(root / name))

    return read


def workload_of(folder: Path) -> str:
    """The program that a recorder's card names; "" where there is no card, or it does not say. A name says nothing."""
    card = folder / CARD
    return str(read_json(card).get("workload") or "") if card.is_file() else ""


def typical(run: RunGraph) -> RunStep:
    """The run's last step with mean latencies.

    Raises:
        InputError: the run has no whole step.
    """
    if not run.graph.steps:
        raise InputError(
            "no whole step in the trace", where=f"run {run.run!r}", remedy="leave the run out of the split"
        )
    found = typical_step(run.graph.for_predictors())
    nodes = found.graph.nodes.assign(latency_us=found.latency_us)
    graph = replace(found.graph, nodes=nodes)
    return RunStep(run.run, graph, run.cluster, _median_step_us(run.graph), run.workload)


def merged(steps: Sequence[RunStep]) -> tuple[RunStep, ...]:
    """One step per run, in order of first appearance: labels are means over its recordings, aligned by content."""
    by_run: dict[str, list[RunStep]] = {}
    for step in steps:
        by_run.setdefault(run_of(step.run), []).append(step)
    return tuple(_merge(run, repeats) for run, repeats in by_run.items())


def _merge(run: str, repeats: Sequence[RunStep]) -> RunStep:
    first = repeats[0]
    if len(repeats) == 1:
        return replace(first, run=run)
    latency = np.stack([_aligned_us(first.graph, other.graph) for other in repeats])  # [num_repeats, num_nodes]
    known = ~np.isnan(latency)
    count = known.sum(axis=0)  # [num_nodes]
    mean = np.where(count > 0, np.where(known, latency, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)
    graph = replace(
        first.graph,
        nodes=first.graph.nodes.assign(latency_us=mean),
        fingerprint=" ".join(r.graph.fingerprint for r in repeats),
    )
    return replace(first, run=run, graph=graph, step_us=float(np.mean([r.step_us for r in repeats])))


def _aligned_us(structure: ExecutionGraph, other: ExecutionGraph) -> np.ndarray:
    """[num_nodes of structure] latencies of `other`; NaN where it has no such node."""
    latency_us = other.nodes["latency_us"].to_numpy(np.float64)
    if structure is other:
        return latency_us
    matched = align(structure, other)
    return np.where(matched >= 0, latency_us[matched], np.nan)


def _median_step_us(graph: ExecutionGraph) -> float:
    """Median period; of a trace without periods the median makespan."""
    periods = [s.period_us for s in graph.steps if s.period_us is not None]
    return float(np.median(periods or [s.makespan_us for s in graph.steps]))
