"""Data set folder -> PreparedData: the typical step of every run as a normalized graph, statistics from train only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch_geometric.data import HeteroData

from gnnperf.analytic import (
    AnalyticConstants,
    AnalyticPredictor,
    collective_models_of,
    fit_constants,
    read_calibrated_calls,
)
from gnnperf.core import InputError, each
from gnnperf.gnn.data.cache import Listed, content_digest, fingerprint, read_graph, stored_graphs
from gnnperf.gnn.data.features import features
from gnnperf.gnn.data.floors import TypedFloors, fit_floors
from gnnperf.gnn.data.machine_scales import MachineScales, in_own_scale
from gnnperf.gnn.data.normalizer import Normalizer, fit_normalizer, widened
from gnnperf.gnn.data.on_demand import OnDemand
from gnnperf.gnn.data.recordings import processors_of
from gnnperf.gnn.data.runs import RunStep, merged, read_step, run_of
from gnnperf.gnn.data.segments import segments_of
from gnnperf.gnn.data.source import SourceMeasurements, SourceRuns, aligned_us, source_runs, with_model_ratio
from gnnperf.gnn.data.splits import Split, prefix_of, read_split, with_more_to_train, with_tests_of
from gnnperf.gnn.data.vocabulary import Vocabulary, fit_vocabulary, joined, united
from gnnperf.gnn.settings import DataConfig
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.hardware import ClusterSpec, DeviceSpec

# What a network was given before that now trains on: new data are given in the same tokens and on the same scales.


@dataclass(frozen=True)
class Earlier:
    """Of an earlier training."""

    vocabulary: Vocabulary  # its tokens; new ones are added behind them
    normalizer: Normalizer  # its scales; ranges widen
    base: tuple[AnalyticConstants, TypedFloors]  # what its network corrects, and continues to correct


def _fit_constants(config: DataConfig, train: Sequence[RunStep], recording: str) -> AnalyticConstants:
    """The analytical base, from training runs only, on one kind of device.

    On CPUs it has the calibrated ops of the data set's machine, which the card of `recording` names.
    """
    device = train[0].cluster.device
    tables = [Path(path).expanduser() for path in config.op_tables if device.kind == "cpu"]
    calibrated = read_calibrated_calls(tables)
    ours = {processor.name for processor in processors_of([Path(config.path).expanduser() / recording])}
    if calibrated is not None and ours and set(calibrated["device"]) != ours:
        theirs = ", ".join(sorted(set(calibrated["device"])))
        raise InputError(f"op tables of {theirs}, runs on {', '.join(sorted(ours))}", where="data.op_tables",
                         remedy="data.op_tables=[], or tables of the runs' machine")  # fmt: skip
    return fit_constants([run.graph for run in train], device, calibrated)


@dataclass(frozen=True)
class Step:
    """The typical step of one run. Tables and tensors are read from disk again once memory has no space for them.

    Attributes:
        run: the run's name; in the test part the recording's.
        work: the step, without edges inferred from time, whose node labels are what `data` holds; and its analytical
            prediction, with the lags of edges.
        example: the normalized graph; `example()[...].node_id` are rows of the node table.
        cluster: the hardware it ran on.
        step_us: measured step time (runs.RunStep).
        workload: which program it is, as in the run's card; "" unknown.
        segments: (most nodes, hops) -> graphs that a larger one is cut into, normalized.
    """

    run: str
    work: OnDemand[tuple[ExecutionGraph, Prediction]]
    example: OnDemand[HeteroData]
    cluster: ClusterSpec
    step_us: float
    workload: str = ""
    segments: Callable[[int, int], list[OnDemand[HeteroData]]] | None = None

    @property
    def graph(self) -> ExecutionGraph:
        """The execution graph."""
        return self.work()[0]

    @property
    def base(self) -> Prediction:
        """The analytical prediction."""
        return self.work()[1]

    @property
    def data(self) -> HeteroData:
        """What the network is given."""
        return self.example()

    @property
    def num_nodes(self) -> int:
        """Of the execution graph."""
        return self.work.num_nodes

    @property
    def nodes(self) -> pd.DataFrame:
        """Node table of the step."""
        return self.graph.nodes

    def stored(self, name: str) -> np.ndarray:
        """[num_nodes] a column of `data`; NaN at device and link nodes."""
        result = np.full(self.graph.num_nodes, np.nan)
        for store in self.data.node_stores:
            result[store.node_id.numpy()] = store[name].numpy()
        return result


@dataclass(frozen=True)
class PreparedData:
    """What training takes.

    Attributes:
        split: run names by part; of train those that are learned from.
        steps: part -> its steps: one per run to train and to validate on, one per recording to test on.
        recordings: of the validation runs, one step per recording: what intervals are calibrated on, because a user
            compares with one recording, and a mean over several misses less.
        vocabulary: words of the training runs, behind those of an earlier training.
        constants: of the analytical base, host overheads fitted on the training runs, or an earlier training's.
        floors: bases where the analytical model has no prediction.
        normalizer: feature statistics of the training runs, on the scales of an earlier training.
        fingerprint: hash of what the steps hold, in all parts; code that makes equal data keeps it.
        machine_scales: of other data sets that train: what their recordings' names begin with -> how much longer their
            machine takes, which is taken out of their labels.
        training_fingerprint: the same without the test part: of all that a learner sees. What is tested on two parts
            after the same training has one.
        source_constants: of the analytical model on the source machine; None: there is no source.
    """

    split: Split
    steps: dict[str, tuple[Step, ...]]
    recordings: tuple[Step, ...]
    vocabulary: Vocabulary
    constants: AnalyticConstants
    floors: TypedFloors
    normalizer: Normalizer
    fingerprint: str
    training_fingerprint: str
    machine_scales: Mapping[str, MachineScales]
    source_constants: AnalyticConstants | None = None


def load_data(
    config: DataConfig, hardware: DeviceSpec | None = None, cluster: ClusterSpec | None = None,
    earlier: Earlier | None = None,
) -> PreparedData:  # fmt: skip
    """Read a data set folder.

    Args:
        config: which data, how much of it.
        hardware: the device that all runs ran on, those of `test_path`, too; None: each trace's own.
        cluster: their links and hosts; None: the default of the device.
        earlier: of the network that trains on with these data; None: a new one.

    Raises:
        InputError: a bad split, another data set to test on without a run that is new, a run that cannot be read,
            unknown hardware, no measured latency in train, or an earlier base that is not of such data.
    """
    split, read = opened(config, hardware, cluster)
    if config.source_path is None:
        return prepare(config, split, read, earlier)
    folder = Path(config.source_path).expanduser()
    return prepare(config, split, read, earlier, source_runs(folder, Path(config.cache_dir).expanduser()))


def opened(
    config: DataConfig, hardware: DeviceSpec | None = None, cluster: ClusterSpec | None = None
) -> tuple[Split, Callable[[str], RunStep]]:
    """The split of a data set folder, and what reads the typical steps of its recordings by name."""
    root, cache_dir = Path(config.path).expanduser(), Path(config.cache_dir).expanduser()
    if config.bucket_bytes is not None and cluster is not None:
        raise InputError("a cluster file already describes its links", where="data.bucket_bytes",
                         allowed="cluster.inter.bucket_bytes together with cluster=")  # fmt: skip
    split, roots = read_split(root, config.axis), dict[str, Path]()
    if config.test_path is not None:
        tested_in = Path(config.test_path).expanduser()
        split = with_tests_of(split, tested_in)
        roots |= dict.fromkeys(split.test, tested_in)
    for folder in (Path(path).expanduser() for path in config.train_paths):
        known, split = split.train, with_more_to_train(split, folder, [roots.get(n, root) / n for n in split.test])
        roots |= dict.fromkeys(split.train[len(known) :], folder.resolve().parent)  # names begin with the folder's
    bucket_bytes = config.bucket_bytes
    return split, lambda name: read_step(roots.get(name, root), name, cache_dir, hardware, cluster, bucket_bytes)


Mapped = Callable[[Callable[[Any], Any], Sequence[Any], str], list[Any]]  # function, its arguments, what it does


def in_turn(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> list[Any]:
    """The results, one after another, in this process."""
    return [function(item) for item in each(items, what, "runs")]


@dataclass(frozen=True)
class StoredRun:
    """The typical step of a run, or of one recording, and what of it stays in memory."""

    run: str  # name
    step: OnDemand[RunStep]
    cluster: ClusterSpec  # the hardware it ran on
    step_us: float  # measured
    workload: str  # which program it is; "" unknown
    vocabulary: Vocabulary  # of its own words

    @property
    def num_nodes(self) -> int:
        """Of the step."""
        return self.step.num_nodes


def stored_run(
    named: tuple[str, Sequence[str]], read: Callable[[str], RunStep], scaled: Mapping[str, RunStep]
) -> StoredRun:
    """The run of a name and its recordings, which are `scaled`, or which `read` reads."""
    name, recordings = named

    def make() -> RunStep:
        (step,) = merged([scaled[one] if one in scaled else read(one) for one in recordings])
        return replace(step, run=name)

    step = make()
    words = fit_vocabulary([step.graph.nodes])
    on_demand = OnDemand(make, step.graph.num_nodes, step)
    return StoredRun(name, on_demand, step.cluster, step.step_us, step.workload, words)


MAX_FITTED_NODES, MIN_FITTED_RUNS = 2_000_000, 16


def sampled(runs: Sequence[Any]) -> Sequence[Any]:
    """Evenly spaced runs, each with `num_nodes`: what is fitted on all of them at once takes no more memory with more.

    All, unless they have more than MAX_FITTED_NODES.
    """
    stride = -(-sum(run.num_nodes for run in runs) // MAX_FITTED_NODES)
    return runs[:: max(min(stride, len(runs) // MIN_FITTED_RUNS), 1)]


INTERVALS = "intervals"  # the part of recordings that intervals are calibrated on


@dataclass(frozen=True)
class Encoded:
    """Raw features of all steps on disk, and what they were made with."""

    split: Split
    runs: dict[str, list[StoredRun]]  # by part, and INTERVALS
    paths: dict[str, list[Path]]  # their features
    encoder: Encoder
    machine_scales: Mapping[str, MachineScales]


def encode(
    config: DataConfig, split: Split, read: Callable[[str], RunStep], earlier: Earlier | None = None,
    source: SourceRuns | None = None, mapped: Mapped = in_turn,
) -> Encoded:  # fmt: skip
    """Fit on the training runs what features need, and write those of all runs. Arguments: see `prepare`."""
    others = [prefix_of(Path(path).expanduser()) for path in config.train_paths]
    scaled, machine_scales = dict[str, RunStep](), dict[str, MachineScales]()
    if others:  # by all pairs of runs at once
        steps, machine_scales = in_own_scale([read(name) for name in split.train], others)
        scaled, split = {step.run: step for step in steps}, replace(split, train=tuple(step.run for step in steps))
    units = {"train": _by_run(split.train), "val": _by_run(split.val), "test": [(name, [name]) for name in split.test],
             INTERVALS: [(name, [name]) for name in split.val]}  # fmt: skip
    runs = {part: mapped(partial(stored_run, read=read, scaled=scaled), of_part, f"reading recordings, {part}")
            for part, of_part in units.items()}  # fmt: skip
    _check_kinds(config, runs, earlier)
    fitted_on = [run.step() for run in sampled(runs["train"])]
    words = reduce(united, (run.vocabulary for run in runs["train"]))
    if earlier is None:
        vocabulary, floors = words, fit_floors(step.graph.nodes for step in fitted_on)
        constants = _fit_constants(config, fitted_on, split.train[0])
    else:
        vocabulary, (constants, floors) = joined(earlier.vocabulary, words), earlier.base
    there = None if source is None else source.constants(fitted_on)
    encoder = Encoder(constants, vocabulary, floors, Path(config.cache_dir).expanduser(), source, there)
    paths = {part: mapped(encoder.features_of, of_part, f"building features, {part}") for part, of_part in runs.items()}
    return Encoded(split, runs, paths, encoder, machine_scales)


def _by_run(recordings: Iterable[str]) -> list[tuple[str, list[str]]]:
    units: dict[str, list[str]] = {}
    for name in recordings:
        units.setdefault(run_of(name), []).append(name)
    return list(units.items())


def prepare(
    config: DataConfig, split: Split, read: Callable[[str], RunStep], earlier: Earlier | None = None,
    source: SourceRuns | None = None,
) -> PreparedData:  # fmt: skip
    """PreparedData from typical steps that `read` supplies by name; `source`: what another machine measured."""
    encoded = encode(config, split, read, earlier, source)
    train, encoder = encoded.runs["train"], encoded.encoder
    paths = {run.run: path for run, path in zip(train, encoded.paths["train"], strict=True)}
    first = [paths.pop(run.run) for run in sampled(train)]
    normalizer = fit_normalizer(list(map(read_graph, first)), map(read_graph, paths.values()))
    if earlier is not None:
        normalizer = widened(earlier.normalizer, normalizer)
    steps = {part: tuple(encoder.step(run, path, normalizer)
                         for run, path in zip(encoded.runs[part], encoded.paths[part], strict=True))
             for part in encoded.runs}  # fmt: skip
    recordings = tuple(sampled(steps.pop(INTERVALS)))
    given = {part: content_digest(Listed(of_part, _predicted)) for part, of_part in steps.items()}
    fitted = encoder.vocabulary, encoder.floors, normalizer
    learned_from = content_digest(given["train"], given["val"], Listed(recordings, _predicted), *fitted)
    whole = content_digest(learned_from, given["test"])
    return PreparedData(
        encoded.split, steps, recordings, encoder.vocabulary, encoder.constants, encoder.floors, normalizer, whole,
        learned_from, encoded.machine_scales, encoder.source_constants,
    )  # fmt: skip


def _check_kinds(config: DataConfig, runs: Mapping[str, Sequence[StoredRun]], earlier: Earlier | None) -> None:
    """Refuse runs of both kinds of device, and those of another kind than an earlier training's."""
    kinds = sorted({run.cluster.device.kind for run in runs["train"]})
    if len(kinds) > 1:
        raise InputError("training runs on GPUs and on CPUs", where=config.path, remedy="split them into two data sets")
    for run in (*runs["val"], *runs["test"]):
        if run.cluster.device.kind != kinds[0]:
            what = f"run {run.run!r} ran on a {run.cluster.device.kind}, training runs on a {kinds[0]}"
            where = config.test_path or config.path
            raise InputError(what, where=where, remedy="test on runs of the same kind of device")
    if earlier is not None and earlier.base[0].device_kind not in ("", kinds[0]):
        given = f"the checkpoint is of runs on a {earlier.base[0].device_kind}, these are on a {kinds[0]}"
        raise InputError(given, where="init_from", remedy="start from a checkpoint of such devices, or afresh")


def _predicted(step: Step) -> tuple[object, ...]:
    """All that a learner is given of a step, or is judged by."""
    base, graph = step.base, step.graph
    estimates = (base.latency_us, base.lag_us, base.analytic_latency_us, base.mean_latency_us, base.isolated)
    device, link = step.cluster.device.name, step.cluster.intra
    machine = (graph.world_size, graph.ranks, graph.stands_for, device, link, graph.tables)
    measured = (step.run, step.workload, step.step_us, graph.nodes, graph.edges, graph.cross_step)
    return (*measured, machine, step.data.to_dict(), estimates)


@dataclass(frozen=True)
class Encoder:
    """Run -> HeteroData on disk."""

    constants: AnalyticConstants
    vocabulary: Vocabulary
    floors: TypedFloors
    cache_dir: Path
    source: SourceRuns | None = None
    source_constants: AnalyticConstants | None = None

    def features_of(self, run: StoredRun) -> Path:
        """The file with raw (not normalized) features of a run, which take long the first time."""
        step = run.step()
        graph, analytic = step.graph, AnalyticPredictor(self.constants)
        source = self._source(step)
        measured = content_digest(graph.nodes["latency_us"].to_numpy(), step.isolated, source)  # not in the fingerprint
        fitted = (analytic, collective_models_of(run.cluster))  # a file of models may change under its name
        key = fingerprint(graph.fingerprint, graph.name, graph.steps, measured, run.cluster, fitted, self.vocabulary,
                          self.floors)  # fmt: skip
        (path,) = stored_graphs(self.cache_dir, key, lambda: [features(
            graph, run.cluster, analytic.predict(graph, run.cluster), self.vocabulary, self.floors, step.isolated,
            source)])  # fmt: skip
        return path

    def step(self, run: StoredRun, path: Path, normalizer: Normalizer) -> Step:
        """The step of a run whose features are in a file."""

        def work() -> tuple[ExecutionGraph, Prediction]:
            graph = run.step().graph
            return graph, AnalyticPredictor(self.constants).predict(graph, run.cluster)

        def example(of: Path = path) -> HeteroData:
            return normalizer.apply(read_graph(of))

        def segments(max_nodes: int, num_hops: int) -> list[OnDemand[HeteroData]]:
            key = f"{path.parent.name}-{max_nodes}-{num_hops}"
            cut = stored_graphs(self.cache_dir, key, lambda: segments_of(read_graph(path), max_nodes, num_hops))
            return [OnDemand(partial(example, one), max_nodes) for one in cut]

        values = OnDemand(work, run.num_nodes), OnDemand(example, run.num_nodes)
        return Step(run.run, *values, run.cluster, run.step_us, run.workload, segments)

    def _source(self, run: RunStep) -> SourceMeasurements | None:
        """What the network is shown of the source machine; None: there is none."""
        if self.source is None or self.source_constants is None:
            return None
        step = self.source.step_of(run)
        measured_us = np.full(run.graph.num_nodes, np.nan) if step is None else aligned_us(run.graph, step)
        here_us, there_us = (AnalyticPredictor(constants).predict(run.graph, run.cluster).latency_us
                             for constants in (self.constants, self.source_constants))  # fmt: skip
        return with_model_ratio(measured_us, here_us, there_us)
