"""A recorded run as one example: a typical step, its nodes with mean latencies, and its step time.

Recordings of one run become one example in training and validation; in the test part each counts. Labels are latencies
of isolated ops, without contention (schedule.observed). The usual label is the mean over all steps. The scheduled label
is the mean over steps of about the median time, because a step time is a median: a stall in one of four steps is a
quarter of a node's mean, and absent from the median step.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic import default_contention
from gnnperf.core import InputError, NodeType, replacing_folder, untrusted
from gnnperf.gnn.data.cache import fingerprint
from gnnperf.gnn.data.recordings import CARD, program_in, read_json
from gnnperf.graph import ExecutionGraph, load_graph, storage
from gnnperf.hardware import (
    ClusterSpec,
    DeviceSpec,
    default_cluster,
    device_names,
    load_device,
    match_device,
    placed,
    spread,
)
from gnnperf.schedule import align, isolated_us

# The nodes of a recording's last step in every step of the recording, and the kinds that nodes are grouped by.


@dataclass(frozen=True)
class Occurrences:
    """A recording's last step, and where each of its nodes is in every step."""

    last: ExecutionGraph  # the step that lends its structure
    rows: np.ndarray  # [num_steps, num_nodes of last] rows of the recording's node table; -1: the step has no such node

    def mean(self, values: np.ndarray) -> np.ndarray:
        """[num_nodes of last] means over the steps of `values` [num_nodes of the recording]; NaN where all are."""
        return _mean(list(self.rows), [values] * len(self.rows))

    def lower_quartile(self, values: np.ndarray) -> np.ndarray:
        """[num_nodes of last] the same of what is above 0: a stall in one of four steps does not count.

        Of a node that took 0 us in all steps it is NaN, unknown: what is done with it takes the ratio of two machines.
        """
        values = np.where(self.rows >= 0, values[self.rows], np.nan)
        values = np.sort(np.where(values > 0, values, np.nan), axis=0)  # [num_steps, num_nodes], NaN last
        place = 0.25 * np.maximum((values > 0).sum(axis=0) - 1, 0)  # [num_nodes]
        low, high = (np.take_along_axis(values, to(place).astype(int)[None], 0)[0] for to in (np.floor, np.ceil))
        return low + (place % 1) * (high - low)


def occurrences(graph: ExecutionGraph) -> Occurrences:
    """Align the steps of a recording by content."""
    if not graph.steps:
        raise InputError("has no whole step", where=f"graph {graph.name!r}", remedy="record whole steps")
    last = graph.step(graph.steps[-1].step)
    rows = np.full((len(graph.steps), last.num_nodes), -1)  # [num_steps, num_nodes]
    compared = graph.for_alignment()
    for place, label in enumerate(graph.steps):
        matched = align(last, compared.by_itself(label.step))
        rows[place] = np.where(matched >= 0, graph.rows_of_step(label.step)[matched], -1)
    return Occurrences(last, rows)


def node_kinds(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] node type, for hosts and parts of collectives with their segment: host T1, comm exit, compute."""
    (kind, kinds), (segment, segments) = (pd.factorize(nodes[name]) for name in ("node_type", "segment"))
    split = (NodeType.HOST, NodeType.COMM)
    texts = [[f"{one} {part}" if one in split else one for part in (*np.asarray(segments), "")]
             for one in (*np.asarray(kinds), "")]  # fmt: skip
    result: np.ndarray = np.array(texts, dtype=object)[kind, segment]
    return result


# Which hardware a run ran on.

GENERIC_CPU = "cpu_generic"


def cluster_for(graph: ExecutionGraph, hardware: DeviceSpec | None, cluster: ClusterSpec | None) -> ClusterSpec:
    """The cluster of a run: as configured, else as its trace names the device.

    `cluster` gives links and hosts, with whatever devices; None: the device's default, placed as in the run's card.
    """
    device = hardware or _traced_device(graph)
    if cluster:
        return spread(replace(cluster, device=device), graph.world_size)
    return placed(default_cluster(device), graph.placement, graph.world_size)


def _traced_device(graph: ExecutionGraph) -> DeviceSpec:
    names = sorted(set(graph.device_names)) or [""]
    if names == [""] and not graph.runs_on_gpu:
        return load_device(GENERIC_CPU)  # processors go unnamed
    result = match_device(names[0])
    if len(names) > 1 or result is None:
        what = f"ranks on {names}" if len(names) > 1 else f"device {names[0]!r} is not in the catalog"
        remedy = "pass hardware=NAME if all runs ran on one device, or add it to conf/hardware"
        raise InputError(what, where=f"run {graph.name!r}", allowed=", ".join(device_names()), remedy=remedy)
    return result


STEADY = 0.1  # a step counts for what is scheduled if its time is so near the median: |ratio - 1|


@dataclass(frozen=True)
class RunGraph:
    """One recording of a data set."""

    run: str  # its name in the split, <run> or <run>/<repeat>
    graph: ExecutionGraph  # all its steps
    cluster: ClusterSpec  # the hardware it ran on
    workload: str = ""  # which program it is, as in its card; "" unknown


@dataclass(frozen=True)
class IsolatedLabels:
    """Latencies of a run's ops without what overlapping work took; all [num_nodes]."""

    # mean over all steps, without what such work usually took (Contention.usual_stretch); NaN unknown
    usual_us: np.ndarray
    steady_us: np.ndarray  # mean over the steps that took about the median time; NaN unknown


@dataclass(frozen=True)
class RunStep:
    """The typical step of a run."""

    run: str  # the run's name
    # one step without edges inferred from time; `latency_us` of its nodes are means over the run's steps
    graph: ExecutionGraph
    cluster: ClusterSpec  # the hardware it ran on
    step_us: float  # measured: the median period of the run's steps; of a trace without periods the median makespan
    isolated: IsolatedLabels  # latencies of its ops only
    workload: str = ""  # which program it is; "" unknown


def run_of(recording: str) -> str:
    """<run>/<repeat> -> run; another name as it is."""
    run, _, repeat = recording.rpartition("/")
    return run if run and repeat.isdecimal() else recording


def read_run(
    root: Path, name: str, cache_dir: Path | None, hardware: DeviceSpec | None = None,
    cluster: ClusterSpec | None = None,
) -> RunGraph:  # fmt: skip
    """What was recorded as `name`, <run> or <run>/<repeat>, below `root`.

    The profiler's cost stays in it: taken out as a mean per event, it would leave nothing of short segments.
    `hardware` None is the trace's own; `cluster` None its default.
    """
    graph = load_graph(root / name, cache_dir)
    return RunGraph(name, graph, cluster_for(graph, hardware, cluster), workload_of(root / name))


def workload_of(folder: Path) -> str:
    """The program that a recorder's card names; "" where there is no card, or it names none."""
    card = folder / CARD
    return program_in(read_json(card)) if card.is_file() else ""


def typical(run: RunGraph) -> RunStep:
    """The run's last step with mean latencies."""
    if not run.graph.steps:
        raise InputError(
            "no whole step in the trace", where=f"run {run.run!r}", remedy="leave the run out of the split"
        )
    graph = run.graph.for_predictors()
    result = occurrences(graph)
    step_us = np.array([np.nan if s.period_us is None else s.period_us for s in graph.steps])  # [num_steps]
    if np.isnan(step_us).all():
        step_us = np.array([s.makespan_us for s in graph.steps])
    mean_us = result.mean(graph.nodes["latency_us"].to_numpy(np.float64))
    typical_us = float(np.nanmedian(step_us))
    steady = Occurrences(result.last, result.rows[np.abs(step_us / typical_us - 1) <= STEADY])
    last = replace(result.last, nodes=result.last.nodes.assign(latency_us=mean_us))
    usual_us, free_us = without_contention(run)
    mean_free_us, steady_us = result.mean(free_us), (steady if len(steady.rows) else result).mean(free_us)
    steady_us = np.where(np.isnan(steady_us), mean_free_us, steady_us)  # of a node that no steady step has
    isolated = IsolatedLabels(result.mean(usual_us), steady_us)
    return RunStep(run.run, last, run.cluster, typical_us, isolated, run.workload)


def without_contention(run: RunGraph) -> tuple[np.ndarray, np.ndarray]:
    """[num_nodes of the recording] latencies without what overlapping work usually took, and without all it took."""
    contention, nodes = default_contention().on(run.cluster), run.graph.nodes
    recorded_us = nodes["latency_us"].to_numpy(np.float64)
    free_us = isolated_us(run.graph, contention)
    moves = (nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()
    known = np.nan_to_num(free_us) > 0
    stretch = np.divide(recorded_us, free_us, out=np.ones(len(free_us)), where=known)  # 1 where unknown
    return recorded_us / contention.usual_stretch(moves, free_us, stretch), free_us


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
    # Per recording [num_nodes] rows of the first one's nodes; -1 where it has no such node.
    rows = [np.arange(first.graph.num_nodes), *(align(first.graph, other.graph) for other in repeats[1:])]
    mean_us = _mean(rows, [step.graph.nodes["latency_us"].to_numpy(np.float64) for step in repeats])
    usual_us = _mean(rows, [step.isolated.usual_us for step in repeats])
    steady_us = _mean(rows, [step.isolated.steady_us for step in repeats])
    graph = replace(
        first.graph,
        nodes=first.graph.nodes.assign(latency_us=mean_us),
        fingerprint=" ".join(r.graph.fingerprint for r in repeats),
    )
    step_us = float(np.mean([r.step_us for r in repeats]))
    return replace(first, run=run, graph=graph, step_us=step_us, isolated=IsolatedLabels(usual_us, steady_us))


def _mean(rows: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> np.ndarray:
    """[num_nodes] means of what is known: `values` of each recording, at its `rows`."""
    result = np.stack([np.where(r >= 0, v[r], np.nan) for r, v in zip(rows, values, strict=True)])
    known = ~np.isnan(result)  # [num_repeats, num_nodes]
    count = known.sum(axis=0)  # [num_nodes]
    return np.where(count > 0, np.where(known, result, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)


# Typical steps on disk, in steps/<key>/, so that recordings are read once. A key is a hash of the recording's files, of
# the code and of the hardware that the caller gives.

STEPS, LABELS = "steps", "labels.npz"
REMEDY = "remove it, and repeat the command"
Given = tuple[DeviceSpec | None, ClusterSpec | None]  # hardware of all runs; None: each trace's own


@dataclass(frozen=True)
class Recorded:
    """Reads recordings by name: all their steps, or the typical one."""

    roots: Mapping[str, Path]  # name -> its data set folder
    cache_dir: Path  # of typical steps
    given: Given

    def __call__(self, name: str) -> RunGraph:
        """A recording."""
        return read_run(self.roots[name], name, None, *self.given)

    def typical(self, name: str) -> tuple[str, RunStep]:
        """Key and typical step of a recording, equal to what is on disk; one that cannot be read is made anew."""
        path = self.roots[name] / name
        key = fingerprint(storage.fingerprint([path]), self.given)
        folder, about = self.cache_dir / STEPS / key, (name, self.given, workload_of(path))
        if folder.is_dir():
            with suppress(InputError):
                return key, read_step(folder, *about)
        step = typical(self(name))
        write_step(step, folder)
        return key, step


def write_step(step: RunStep, folder: Path) -> None:
    """Write a step: all of it, or nothing."""
    labels: dict[str, Any] = {**vars(step.isolated), "step_us": step.step_us, "cross_step": step.graph.cross_step}
    try:
        with replacing_folder(folder) as temporary:
            storage.write_files(step.graph, temporary)
            np.savez(temporary / LABELS, **labels)
    except OSError:
        if not folder.is_dir():  # otherwise another worker wrote the same content at the same time
            raise


def read_step(folder: Path, run: str, given: Given, workload: str, remedy: str = REMEDY) -> RunStep:
    """What `write_step` wrote, as the step of `run`. Raises InputError: a file is missing or damaged."""
    graph = storage.read_graph(folder)
    with untrusted.reading(folder, "is damaged", remedy=remedy), (folder / LABELS).open("rb") as file:
        labels = np.load(file)
        graph = replace(graph, cross_step=labels["cross_step"])
        isolated, step_us = IsolatedLabels(labels["usual_us"], labels["steady_us"]), float(labels["step_us"])
    return RunStep(run, graph, cluster_for(graph, *given), step_us, isolated, workload)
