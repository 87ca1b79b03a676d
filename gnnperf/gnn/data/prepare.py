"""Data set folder -> PreparedData: the typical step of every run as a normalized graph, statistics from train only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
from gnnperf.gnn.data.cache import cached_graphs, content_digest, fingerprint
from gnnperf.gnn.data.features import features
from gnnperf.gnn.data.floors import TypedFloors, fit_floors
from gnnperf.gnn.data.machine_scales import MachineScales, in_own_scale
from gnnperf.gnn.data.normalizer import Normalizer, fit_normalizer, widened
from gnnperf.gnn.data.recordings import processors_of
from gnnperf.gnn.data.runs import RunGraph, RunStep, knows_buckets, merged, read_runs, typical
from gnnperf.gnn.data.source import (
    SourceMeasurements,
    SourceRuns,
    aligned_us,
    source_runs,
    with_model_ratio,
)
from gnnperf.gnn.data.splits import (
    PARTS,
    Split,
    prefix_of,
    read_also,
    read_named,
    read_split,
    with_more_to_train,
    with_tests_of,
)
from gnnperf.gnn.data.vocabulary import Vocabulary, fit_vocabulary, joined
from gnnperf.gnn.settings import DataConfig
from gnnperf.graph import ExecutionGraph, Prediction, Predictor
from gnnperf.hardware import ClusterSpec, DeviceSpec

# What a network was given before that now trains on: new data are given in the same tokens and on the same scales.


@dataclass(frozen=True)
class Earlier:
    """Of an earlier training.

    Attributes:
        vocabulary: its tokens; new ones are added behind them.
        normalizer: its scales; ranges widen.
        base: what its network corrects, and continues to correct.
    """

    vocabulary: Vocabulary
    normalizer: Normalizer
    base: tuple[AnalyticConstants, TypedFloors]

    def check(self, device_kind: str) -> None:
        """Refuse data in which its corrections mean nothing."""
        kind = self.base[0].device_kind
        if kind not in ("", device_kind):
            given = f"the checkpoint is of runs on a {kind}, these are on a {device_kind}"
            raise InputError(given, where="init_from", remedy="start from a checkpoint of such devices, or afresh")


# What the network corrects: analytical constants and floors, of the training runs or of an earlier training.


def fit_base(
    config: DataConfig, train: Sequence[RunStep], recording: str, earlier: Earlier | None
) -> tuple[AnalyticConstants, TypedFloors]:
    """What the network corrects: what it corrected before, else constants and floors of the training runs.

    Args:
        config: names the op tables.
        train: the training runs.
        recording: one of theirs, whose card names the machine.
        earlier: of the network that trains on; None: a new one.
    """
    kinds = sorted({run.cluster.device.kind for run in train})
    if len(kinds) > 1:
        raise InputError("training runs on GPUs and on CPUs", where=config.path, remedy="split them into two data sets")
    if earlier is not None:
        earlier.check(kinds[0])
        return earlier.base
    return _fit_constants(config, train, recording), fit_floors([run.graph.nodes for run in train])


def _fit_constants(config: DataConfig, train: Sequence[RunStep], recording: str) -> AnalyticConstants:
    """The analytical base, from training runs only; on CPUs with the calibrated ops of the data set's machine.

    Args:
        config: names the op tables.
        train: the training runs, on one kind of device.
        recording: one of theirs, whose card names the machine.
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
    """The typical step of one run.

    Attributes:
        run: the run's name; in the test part the recording's.
        graph: the step, without edges inferred from time; its node labels are what `data` holds.
        data: the normalized graph; `data[...].node_id` are rows of the node table.
        cluster: the hardware it ran on.
        base: the analytical prediction, with the lags of edges.
        step_us: measured step time (runs.RunStep).
        workload: which program it is, as the run's card says; "" unknown.
    """

    run: str
    graph: ExecutionGraph
    data: HeteroData
    cluster: ClusterSpec
    base: Prediction
    step_us: float
    workload: str = ""

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
    there = read_runs(folder, Path(config.cache_dir).expanduser(), None, None)
    return prepare(config, split, read, earlier, source_runs(folder, there))


def opened(
    config: DataConfig, hardware: DeviceSpec | None = None, cluster: ClusterSpec | None = None
) -> tuple[Split, Callable[[str], RunGraph]]:
    """The split of a data set folder, and what reads its runs by name."""
    root, cache_dir = Path(config.path).expanduser(), Path(config.cache_dir).expanduser()
    if config.bucket_bytes is not None and cluster is not None:
        raise InputError("a cluster file already describes its links", where="data.bucket_bytes",
                         allowed="cluster.inter.bucket_bytes together with cluster=")  # fmt: skip

    def runs_of(folder: Path) -> Callable[[str], RunGraph]:
        read = read_runs(folder, cache_dir, hardware, cluster)
        return read if config.bucket_bytes is None else knows_buckets(read, config.bucket_bytes)

    split, read, tested_in = read_split(root, config.axis), runs_of(root), root
    if config.test_path is not None:
        tested_in = Path(config.test_path).expanduser()
        split = with_tests_of(split, tested_in)
        read = read_also(read, runs_of(tested_in), split.test)
    tested = [tested_in / name for name in split.test]
    for folder in (Path(path).expanduser() for path in config.train_paths):
        known, split = split.train, with_more_to_train(split, folder, tested)
        read = read_also(read, read_named(folder, runs_of(folder)), split.train[len(known) :])
    return split, read


def prepare(
    config: DataConfig, split: Split, read: Callable[[str], RunGraph], earlier: Earlier | None = None,
    source: SourceRuns | None = None,
) -> PreparedData:  # fmt: skip
    """PreparedData from runs that `read` supplies by name; `source`: what another machine measured of the same runs."""
    result = {part: [typical(read(name)) for name in _read_of(split, part)] for part in PARTS}
    others = [prefix_of(Path(path).expanduser()) for path in config.train_paths]
    result["train"], machine_scales = in_own_scale(result["train"], others)
    split = replace(split, train=tuple(run.run for run in result["train"]))
    runs = {"train": merged(result["train"]), "val": merged(result["val"]), "test": tuple(result["test"])}
    _check_kinds(config, runs)
    tables = [run.graph.nodes for run in runs["train"]]
    vocabulary = fit_vocabulary(tables)
    if earlier is not None:
        vocabulary = joined(earlier.vocabulary, vocabulary)
    fitted, floors = fit_base(config, runs["train"], split.train[0], earlier)
    there = None if source is None else source.constants(runs["train"])
    encoder = _Encoder(AnalyticPredictor(fitted), vocabulary, floors, Path(config.cache_dir).expanduser(), source,
                       None if there is None else AnalyticPredictor(there))  # fmt: skip
    encoded = {part: [encoder.encode(run) for run in _features_of(runs[part], part)] for part in PARTS}
    normalizer = fit_normalizer([one.data for one in encoded["train"]])
    if earlier is not None:
        normalizer = widened(earlier.normalizer, normalizer)
    steps = {part: _steps(runs[part], encoded[part], normalizer) for part in PARTS}
    singly = [encoder.encode(run) for run in _features_of(result["val"], "intervals")]
    recordings = _steps(result["val"], singly, normalizer)
    given = {part: content_digest([_predicted(step) for step in steps[part]]) for part in PARTS}
    learned_from = content_digest(
        given["train"], given["val"], [_predicted(step) for step in recordings], vocabulary, floors, normalizer
    )
    whole = content_digest(learned_from, given["test"])
    return PreparedData(
        split, steps, recordings, vocabulary, fitted, floors, normalizer, whole, learned_from, machine_scales, there
    )


def _check_kinds(config: DataConfig, runs: Mapping[str, Sequence[RunStep]]) -> None:
    """What learns on CPUs is not requested GPUs; training runs of both kinds are refused where they are fitted."""
    trained = {run.cluster.device.kind for run in runs["train"]}
    other = [run for part in ("val", "test") for run in runs[part] if run.cluster.device.kind not in trained]
    if trained and other:
        what = f"run {other[0].run!r} ran on a {other[0].cluster.device.kind}, training runs on a {', '.join(trained)}"
        raise InputError(what, where=config.test_path or config.path, remedy="test on runs of the same kind of device")


def _predicted(step: Step) -> tuple[object, ...]:
    """All that a learner is given of a step, or is judged by."""
    base, graph = step.base, step.graph
    estimates = (base.latency_us, base.lag_us, base.analytic_latency_us, base.mean_latency_us, base.isolated)
    machine = (
        graph.world_size,
        graph.ranks,
        graph.stands_for,
        step.cluster.device.name,
        step.cluster.intra,
        graph.tables,
    )
    measured = (step.run, step.workload, step.step_us, graph.nodes, graph.edges, graph.cross_step)
    return (*measured, machine, step.data.to_dict(), estimates)


def _read_of(split: Split, part: str) -> Iterator[str]:
    """Names of recordings, one after the other; the first time graphs are built."""
    return each(split.part(part), f"reading recordings, {part}", "recordings")


def _features_of(runs: Sequence[RunStep], part: str) -> Iterator[RunStep]:
    """The runs, one after the other; the first time features take long."""
    return each(runs, f"building features, {part}", "runs")


@dataclass(frozen=True)
class _Encoded:
    """A raw (not normalized) graph and the analytical prediction it starts from."""

    data: HeteroData
    base: Prediction


@dataclass(frozen=True)
class _Encoder:
    """Run -> HeteroData, cached on disk."""

    analytic: Predictor
    vocabulary: Vocabulary
    floors: TypedFloors
    cache_dir: Path
    source: SourceRuns | None = None
    source_analytic: Predictor | None = None

    def encode(self, run: RunStep) -> _Encoded:
        """The run's step; the analytical prediction is quick, features are not."""
        base = self.analytic.predict(run.graph, run.cluster)
        source = self._source(run, base)
        labels = (run.graph.fingerprint, run.graph.name, run.graph.steps, _digest(run), _source_digest(source))
        fitted = (self.analytic, collective_models_of(run.cluster))  # a file of laws may change under its name
        key = fingerprint(labels, run.cluster, fitted, self.vocabulary, self.floors)
        made = cached_graphs(self.cache_dir, key, lambda: [self._features(run, base, source)])
        return _Encoded(made[0], base)

    def _source(self, run: RunStep, base: Prediction) -> SourceMeasurements | None:
        """What the network is shown of the source machine; None: there is none."""
        if self.source is None or self.source_analytic is None:
            return None
        step = self.source.step_of(run)
        measured_us = np.full(run.graph.num_nodes, np.nan) if step is None else aligned_us(run.graph, step)
        there_us = self.source_analytic.predict(run.graph, run.cluster).latency_us
        return with_model_ratio(measured_us, base.latency_us, there_us)

    def _features(self, run: RunStep, base: Prediction, source: SourceMeasurements | None) -> HeteroData:
        return features(run.graph, run.cluster, base, self.vocabulary, self.floors, run.isolated, source)


def _source_digest(source: SourceMeasurements | None) -> str:
    if source is None:
        return ""
    return hashlib.sha256(source.measured_us.tobytes() + source.model_ratio.tobytes()).hexdigest()


def _digest(run: RunStep) -> str:
    """Of the labels: means over steps are not in the graph's fingerprint."""
    digest = hashlib.sha256(run.graph.nodes["latency_us"].to_numpy(np.float64).tobytes())
    for values in (run.isolated.usual_us, run.isolated.steady_us):
        digest.update(values.tobytes())
    return digest.hexdigest()


def _steps(runs: Iterable[RunStep], encoded: Iterable[_Encoded], normalizer: Normalizer) -> tuple[Step, ...]:
    return tuple(
        Step(run.run, run.graph, normalizer.apply(one.data), run.cluster, one.base, run.step_us, run.workload)
        for run, one in zip(runs, encoded, strict=True)
    )
