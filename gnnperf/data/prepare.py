"""Data set folder -> PreparedData: every step of every run as a normalized graph, statistics from train only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from torch_geometric.data import HeteroData

from gnnperf.analytic import AnalyticConstants, AnalyticPredictor, fit_constants, read_calibrated_calls
from gnnperf.analytic.collective.files import laws_of
from gnnperf.data.cache import cached_graphs, fingerprint
from gnnperf.data.clusters import cluster_for
from gnnperf.data.config import DataConfig
from gnnperf.data.features import features
from gnnperf.data.floors import TypedFloors, fit_floors
from gnnperf.data.normalizer import Normalizer, fit_normalizer
from gnnperf.data.splits import PARTS, Split, read_split
from gnnperf.data.vocabulary import Vocabulary, fit_vocabulary
from gnnperf.errors import InputError
from gnnperf.evaluate.recordings import CARD, read_json
from gnnperf.graph import load_graph
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec
from gnnperf.prediction import Predictor


@dataclass(frozen=True)
class RunGraph:
    """One run of a data set, and the hardware it ran on."""

    run: str
    graph: ExecutionGraph
    cluster: ClusterSpec


@dataclass(frozen=True)
class RunSteps:
    """Steps of one run as graphs of their own."""

    run: str
    graphs: tuple[ExecutionGraph, ...]
    cluster: ClusterSpec


@dataclass(frozen=True)
class Step:
    """One step of one run.

    Attributes:
        run: the run's name in the split.
        nodes: node table of the step; `data[...].node_id` are its row numbers.
        data: the normalized graph.
    """

    run: str
    nodes: pd.DataFrame
    data: HeteroData


@dataclass(frozen=True)
class PreparedData:
    """What training takes.

    Attributes:
        split: run names by part.
        steps: part -> its steps.
        vocabulary: words of the training runs.
        constants: of the analytical base, host overheads fitted on the training runs.
        floors: bases where the analytical model has no answer.
        normalizer: feature statistics of the training runs.
        fingerprint: hash of code and inputs.
    """

    split: Split
    steps: dict[str, tuple[Step, ...]]
    vocabulary: Vocabulary
    constants: AnalyticConstants
    floors: TypedFloors
    normalizer: Normalizer
    fingerprint: str


def load_data(
    config: DataConfig, hardware: DeviceSpec | None = None, cluster: ClusterSpec | None = None
) -> PreparedData:
    """Read a data set folder.

    Args:
        config: which data, how much of it.
        hardware: the device that all runs ran on; None: each trace's own.
        cluster: their links and hosts; None: the default of the device.

    Raises:
        InputError: a bad split, a run that cannot be read, unknown hardware, no measured latency in train.
    """
    root, cache_dir = Path(config.path).expanduser(), Path(config.cache_dir).expanduser()
    split = read_split(root, config.axis)

    def read(run: str) -> RunGraph:
        graph = load_graph(root / run, cache_dir)
        return RunGraph(run, graph, cluster_for(graph, hardware, cluster))

    return prepare(config, split, read)


def prepare(config: DataConfig, split: Split, read: Callable[[str], RunGraph]) -> PreparedData:
    """PreparedData from runs that `read` supplies by name.

    Raises:
        InputError: no measured latency in train, or a run without whole steps.
    """
    split = replace(split, train=split.train[: config.max_runs])
    runs = {part: tuple(single_steps(read(r), config.max_steps_per_run) for r in split.part(part)) for part in PARTS}
    train = [graph for run in runs["train"] for graph in run.graphs]
    tables = [graph.nodes for graph in train]
    vocabulary, floors = fit_vocabulary(tables), fit_floors(tables)
    fitted = _fit_constants(config, runs["train"])
    encoder = _Encoder(AnalyticPredictor(fitted), vocabulary, floors, Path(config.cache_dir).expanduser())
    raw = {part: [encoder.encode(run) for run in runs[part]] for part in PARTS}
    normalizer = fit_normalizer([data for graphs in raw["train"] for data in graphs])
    steps = {part: _steps(runs[part], raw[part], normalizer) for part in PARTS}
    inputs = [(part, run.run, [g.fingerprint for g in run.graphs]) for part in PARTS for run in runs[part]]
    digest = fingerprint(inputs, vocabulary, floors, fitted)
    return PreparedData(split, steps, vocabulary, fitted, floors, normalizer, digest)


def _fit_constants(config: DataConfig, train: Sequence[RunSteps]) -> AnalyticConstants:
    """The analytical base, from training runs only; on CPUs with the calibrated ops of the data set's machine.

    Raises:
        InputError: runs on GPUs and on CPUs, or an op table of another processor than the runs'.
    """
    device = train[0].cluster.device
    kinds = sorted({run.cluster.device.kind for run in train})
    if len(kinds) > 1:
        raise InputError("training runs on GPUs and on CPUs", where=config.path, remedy="split them into two data sets")
    tables = [Path(path).expanduser() for path in config.op_tables if device.kind == "cpu"]
    calibrated = read_calibrated_calls(tables)
    ours = _processor(Path(config.path).expanduser() / train[0].run / CARD)
    if calibrated is not None and ours and set(calibrated["device"]) != {ours}:
        theirs = ", ".join(sorted(set(calibrated["device"])))
        raise InputError(f"op tables of {theirs}, runs on {ours}", where="data.op_tables",
                         remedy="data.op_tables=[], or tables of the runs' machine")  # fmt: skip
    return fit_constants([graph for run in train for graph in run.graphs], device, calibrated)


def _processor(card: Path) -> str:
    """What a recorder's card calls the device of rank 0; "" where there is no card, or it does not say."""
    if not card.is_file():
        return ""
    ranks = read_json(card).get("ranks") or [{}]
    return str((ranks[0].get("device") or {}).get("name") or "")


def single_steps(run: RunGraph, limit: int) -> RunSteps:
    """The last `limit` steps of a run, one graph each, without edges inferred from time.

    Raises:
        InputError: the run has no whole step.
    """
    numbers = [s.step for s in run.graph.steps][-limit:]
    if not numbers:
        raise InputError(
            "no whole step in the trace", where=f"run {run.run!r}", remedy="leave the run out of the split"
        )
    whole = run.graph.for_predictors()
    return RunSteps(run.run, tuple(whole.step(k) for k in numbers), run.cluster)


@dataclass(frozen=True)
class _Encoder:
    """Run -> HeteroData, cached on disk."""

    analytic: Predictor
    vocabulary: Vocabulary
    floors: TypedFloors
    cache_dir: Path

    def encode(self, run: RunSteps) -> list[HeteroData]:
        """Raw (not normalized) graphs of the run's steps."""
        labels = [(g.fingerprint, g.name, g.steps) for g in run.graphs]
        base = (self.analytic, laws_of(run.cluster))  # a file of laws may change under its name
        key = fingerprint(labels, run.cluster, base, self.vocabulary, self.floors)
        return cached_graphs(self.cache_dir, key, lambda: [self._features(g, run.cluster) for g in run.graphs])

    def _features(self, graph: ExecutionGraph, cluster: ClusterSpec) -> HeteroData:
        return features(graph, cluster, self.analytic.predict(graph, cluster), self.vocabulary, self.floors)


def _steps(runs: Iterable[RunSteps], raw: Iterable[list[HeteroData]], normalizer: Normalizer) -> tuple[Step, ...]:
    return tuple(
        Step(run.run, graph.nodes, normalizer.apply(data))
        for run, graphs in zip(runs, raw, strict=True)
        for graph, data in zip(run.graphs, graphs, strict=True)
    )
