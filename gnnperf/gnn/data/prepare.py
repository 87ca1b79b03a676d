"""Data set folder -> PreparedData: the typical step of every run as a normalized graph, statistics from train only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch_geometric.data import HeteroData

from gnnperf import analytic as models
from gnnperf.core import InputError, Mapped, NodeType, in_turn
from gnnperf.gnn.data.cache import cached_graph, content_digest, fingerprint, packed, read_graph
from gnnperf.gnn.data.features import features
from gnnperf.gnn.data.floors import TypedFloors, fit_floors, texts_of
from gnnperf.gnn.data.normalizer import Normalizer, fit_normalizer, widened
from gnnperf.gnn.data.recordings import processors_of
from gnnperf.gnn.data.runs import IsolatedLabels, Recorded, RunGraph, RunStep, merged, node_kinds, run_of, typical
from gnnperf.gnn.data.segments import SegmentedGraph
from gnnperf.gnn.data.source import MovedRuns, SourceRuns, moved_runs, source_runs
from gnnperf.gnn.data.speed_factors import MeasuredTwice, SpeedFactors, fit_speed_factors
from gnnperf.gnn.data.splits import PARTS, Split, prefix_of, read_split, with_more_to_train, with_tests_of
from gnnperf.gnn.data.vocabulary import Vocabulary, fit_vocabulary, joined
from gnnperf.gnn.settings import DataConfig
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.hardware import ClusterSpec, DeviceSpec
from gnnperf.schedule import align

# Labels of another data set, scaled to the speed of our machine by runs that both recorded.
#     label = recorded there x expected latency here / there (data.speed_factors)
#
# Unscaled labels would attribute the speed of a machine to its programs.

MOST_UNKNOWN = 0.05  # of a step's time: with more in kinds that no shared run has, the recording is left out


@dataclass(frozen=True)
class MachineScales:
    """How much longer another machine takes."""

    factors: SpeedFactors  # expected latency here / there
    kinds: frozenset[str] = frozenset()  # kinds of node that both measured, of ops with their dtype
    ratio: float = 1.0  # time there / here, median of nodes
    num_shared: int = 0  # runs that both recorded
    num_left_out: int = 0  # recordings left out, because too much of them is of no known kind

    def __str__(self) -> str:
        """In a line."""
        if not self.num_shared:
            return "shares no run with ours: its labels are as its machine took them"
        left_out = f"; left out, because of unknown speed: {self.num_left_out}" if self.num_left_out else ""
        return f"takes {self.ratio:.2f} times as long as ours (median node), by {self.num_shared} shared runs{left_out}"

    def scaled_us(self, nodes: pd.DataFrame, recorded_us: np.ndarray) -> np.ndarray:
        """[num_nodes] expected latencies here; NaN for kinds that no shared run has. 0 (a rank's arrival) stays 0."""
        known = np.isin(_kinds(nodes), list(self.kinds)) | (recorded_us == 0)
        return np.where(known, self.factors.moved_us(nodes, recorded_us), np.nan)


def machine_scales_of(pairs: Sequence[tuple[RunStep, RunStep]]) -> MachineScales:
    """Speed factors from pairs of the same run there and here; of no pairs none."""
    if not pairs:
        return MachineScales(SpeedFactors({}))
    steps = [_measured_twice(there, here) for there, here in pairs]
    nodes = pd.concat([one.nodes for one in steps])
    here_us, there_us = (np.concatenate(us) for us in zip(*((s.here_us, s.there_us) for s in steps), strict=True))
    both = (np.nan_to_num(here_us) > 0) & (np.nan_to_num(there_us) > 0)
    ratio = float(np.median(there_us[both] / here_us[both])) if both.any() else 1.0
    return MachineScales(fit_speed_factors(steps), frozenset(_kinds(nodes[both])), ratio, len(pairs))


def scaled(run: RunStep, machine_scales: MachineScales) -> RunStep | None:
    """The run at the speed of our machine; None if too much of it is of no known kind.

    Nodes of such a kind, and the lags of edges, become unknown. The step scales as the sum of its nodes.
    """
    nodes = run.graph.nodes
    recorded_us = nodes["latency_us"].to_numpy(np.float64)  # [num_nodes]
    predicted_us = machine_scales.scaled_us(nodes, recorded_us)
    known = np.isfinite(predicted_us)  # [num_nodes]
    known_us = recorded_us[known].sum()
    if known_us < (1 - MOST_UNKNOWN) * np.nansum(recorded_us) or known_us == 0:
        return None
    graph = replace(run.graph, nodes=nodes.assign(latency_us=predicted_us), edges=run.graph.edges.assign(lag_us=np.nan),
                    fingerprint=f"{run.graph.fingerprint} scaled")  # fmt: skip
    labels = (run.isolated.usual_us, run.isolated.steady_us)
    isolated = IsolatedLabels(*(machine_scales.scaled_us(nodes, us) for us in labels))
    step_us = run.step_us * float(predicted_us[known].sum() / known_us)
    return replace(run, graph=graph, step_us=step_us, isolated=isolated)


def in_own_scale(runs: Sequence[RunStep], prefixes: Sequence[str]) -> tuple[list[RunStep], dict[str, MachineScales]]:
    """Training recordings, those of other data sets scaled, and prefix -> speed factors of that data set.

    Runs that both recorded give the factors and are then left out. A data set that shares no run is taken unscaled.
    `prefixes` are what the names of each other data set's recordings begin with.
    """
    ours = [run for run in runs if not run.run.startswith(tuple(prefixes))]
    result, machine_scales = list(ours), dict[str, MachineScales]()
    known = {run.run: run for run in merged(ours)}
    for prefix in prefixes:
        theirs = [run for run in runs if run.run.startswith(prefix)]
        pairs = [(run, known[name]) for run in merged(theirs) if (name := run.run.removeprefix(prefix)) in known]
        names = {run.run for run, _ in pairs}
        new = [run for run in theirs if run_of(run.run) not in names]
        given = machine_scales_of(pairs)
        retained = [in_scale for run in new if (in_scale := scaled(run, given)) is not None] if pairs else new
        machine_scales[prefix] = replace(given, num_left_out=len(new) - len(retained))
        result += retained
    return result, machine_scales


def _measured_twice(there: RunStep, here: RunStep) -> MeasuredTwice:
    matched = align(there.graph, here.graph)  # [num_nodes of there]
    here_us = np.where(matched >= 0, here.graph.nodes["latency_us"].to_numpy(np.float64)[matched], np.nan)
    return MeasuredTwice(there.graph.nodes, here_us, there.graph.nodes["latency_us"].to_numpy(np.float64))


def _kinds(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] kind of node, of ops with their dtype: a processor may have to emulate one."""
    kind = node_kinds(nodes).astype(str)
    is_op = (nodes["node_type"] == NodeType.COMPUTE).to_numpy()
    return np.where(is_op, kind + " " + texts_of(nodes["dtype"]).astype(str), kind)


# What a network was given before that now trains on: new data are given in the same tokens and on the same scales.


@dataclass(frozen=True)
class Earlier:
    """Of an earlier training."""

    vocabulary: Vocabulary  # its tokens; new ones are added behind them
    normalizer: Normalizer  # its scales; ranges widen
    base: tuple[models.AnalyticConstants, TypedFloors]  # what its network corrects, and continues to correct


def fit_base(config: DataConfig, train: Sequence[RunStep], recording: str) -> models.AnalyticConstants:
    """The analytical base, from training runs only, on one kind of device.

    On CPUs it has the calibrated ops of the data set's machine, which the card of `recording` names.
    """
    device = train[0].cluster.device
    tables = [Path(path).expanduser() for path in config.op_tables if device.kind == "cpu"]
    calibrated = models.read_calibrated_calls(tables)
    ours = {processor.name for processor in processors_of([Path(config.path).expanduser() / recording])}
    if calibrated is not None and ours and set(calibrated["device"]) != ours:
        theirs = ", ".join(sorted(set(calibrated["device"])))
        raise InputError(f"op tables of {theirs}, runs on {', '.join(sorted(ours))}", where="data.op_tables",
                         remedy="data.op_tables=[], or tables of the runs' machine")  # fmt: skip
    own = [models.on_reference_host(run.graph, run.cluster.host_speed) for run in train]
    return models.fit_constants(own, device, calibrated, often_fence=models.SUM_FENCE)


@dataclass(frozen=True)
class Step:
    """The typical step of one run."""

    run: str  # the run's name; in the test part the recording's
    graph: ExecutionGraph  # the step, without edges inferred from time; its node labels are what `data` holds
    data: HeteroData  # the normalized graph; `data[...].node_id` are rows of the node table
    cluster: ClusterSpec  # the hardware it ran on
    base: Prediction  # the analytical prediction, with the lags of edges
    step_us: float  # measured step time (runs.RunStep)
    workload: str = ""  # which program it is, as in the run's card; "" unknown

    @property
    def nodes(self) -> pd.DataFrame:
        """Node table of the step."""
        return self.graph.nodes

    @property
    def num_nodes(self) -> int:
        """Nodes that the network is given."""
        return self.data.num_nodes or 0

    def examples(self, max_nodes: int, num_hops: int) -> Sequence[Callable[[], HeteroData]]:
        """What makes `data`, or where it has more nodes each of its segments, which see `num_hops` beyond their own."""
        if self.num_nodes <= max_nodes:
            return [lambda: self.data]
        whole = SegmentedGraph(self.data, num_hops)
        return [partial(whole.segment, window) for window in whole.windows(max_nodes)]

    def stored(self, name: str) -> np.ndarray:
        """[num_nodes] a column of `data`; NaN at device and link nodes."""
        result = np.full(self.graph.num_nodes, np.nan)
        for store in self.data.node_stores:
            result[store.node_id.numpy()] = store[name].numpy()
        return result


@dataclass(frozen=True)
class PreparedData:
    """What training takes."""

    split: Split  # run names by part; of train those that are learned from
    # part -> its steps: one per run to train and to validate on, one per recording to test on
    steps: dict[str, tuple[Step, ...]]
    # of the validation runs, one step per recording: what intervals are calibrated on, because a user compares with one
    # recording, and a mean over several misses less
    recordings: tuple[Step, ...]
    vocabulary: Vocabulary  # tokens of the training runs, behind those of an earlier training
    # of the analytical base, host overheads fitted on the training runs, or an earlier training's
    constants: models.AnalyticConstants
    floors: TypedFloors  # bases where the analytical model has no prediction
    normalizer: Normalizer  # feature statistics of the training runs, on the scales of an earlier training
    fingerprint: str  # hash of what the steps hold, in all parts; code that makes equal data keeps it
    # the same without the test part: of all that a learner sees. What is tested on two parts after the same training
    # has one.
    training_fingerprint: str
    # of other data sets that train: what their recordings' names begin with -> how much longer their machine takes,
    # which is taken out of their labels
    machine_scales: Mapping[str, MachineScales]
    speed_factors: SpeedFactors | None = None  # expected latency here / on the source machine; None: there is no source


MAX_FITTED_NODES, MIN_FITTED_RUNS = 2_000_000, 16


def sampled(steps: Sequence[Any]) -> Sequence[Any]:
    """Evenly spaced ones of steps with more than MAX_FITTED_NODES nodes, for what needs all at once in memory."""
    stride = -(-sum(step.num_nodes for step in steps) // MAX_FITTED_NODES)
    return steps[:: max(min(stride, len(steps) // MIN_FITTED_RUNS), 1)]


def load_data(
    config: DataConfig, hardware: DeviceSpec | None = None, cluster: ClusterSpec | None = None,
    earlier: Earlier | None = None, mapped: Mapped = in_turn,
) -> PreparedData:  # fmt: skip
    """Read a data set folder, or a build of one.

    Args:
        config: which data, how much of it.
        hardware: the device that all runs ran on, those of `test_path`, too; None: each trace's own.
        cluster: their links and hosts; None: the default of the device.
        earlier: of the network that trains on with these data; None: a new one.
        mapped: reads recordings and builds features one by one.

    Raises:
        InputError: a bad split, another data set to test on without a run that is new, a run that cannot be read,
            unknown hardware, no measured latency in train, or an earlier base that is not of such data.
    """
    from gnnperf.gnn.data.build import manifest_of, read_build  # which needs what is above

    if (build := manifest_of(Path(config.path).expanduser())) is not None:
        return read_build(config, build, (hardware, cluster), earlier)
    split, read = opened(config, hardware, cluster)
    if config.source_path is None:
        return prepare(config, split, read, earlier, mapped=mapped)
    folder = Path(config.source_path).expanduser()
    return prepare(config, split, read, earlier, source_runs(folder, Path(config.cache_dir).expanduser()), mapped)


def opened(
    config: DataConfig, hardware: DeviceSpec | None = None, cluster: ClusterSpec | None = None
) -> tuple[Split, Recorded]:
    """The split of a data set folder, and what reads its runs by name."""
    root, cache_dir = Path(config.path).expanduser(), Path(config.cache_dir).expanduser()
    split, tested_in = read_split(root, config.axis), root
    if config.test_path is not None:
        tested_in = Path(config.test_path).expanduser()
        split = with_tests_of(split, tested_in)
    roots = dict.fromkeys((*split.train, *split.val), root) | dict.fromkeys(split.test, tested_in)
    for folder in (Path(path).expanduser() for path in config.train_paths):
        known, split = split.train, with_more_to_train(split, folder, [tested_in / name for name in split.test])
        roots |= dict.fromkeys(split.train[len(known) :], folder.resolve().parent)  # names begin with the folder's
    return split, Recorded(roots, cache_dir, (hardware, cluster))


def _typical_of(read: Callable[[str], RunGraph], name: str) -> RunStep:
    return read.typical(name)[1] if isinstance(read, Recorded) else typical(read(name))


def prepare(
    config: DataConfig, split: Split, read: Callable[[str], RunGraph], earlier: Earlier | None = None,
    source: SourceRuns | None = None, mapped: Mapped = in_turn,
) -> PreparedData:  # fmt: skip
    """PreparedData from runs that `read` supplies by name; `source`: what another machine measured of the same runs."""
    result = {}
    for part in PARTS:
        result[part] = mapped(partial(_typical_of, read), split.part(part), f"reading recordings, {part}")
    others = [prefix_of(Path(path).expanduser()) for path in config.train_paths]
    result["train"], machine_scales = in_own_scale(result["train"], others)
    split = replace(split, train=tuple(run.run for run in result["train"]))
    runs = {"train": merged(result["train"]), "val": merged(result["val"]), "test": tuple(result["test"])}
    _check_kinds(config, runs, earlier)
    tables = [run.graph.nodes for run in runs["train"]]
    if earlier is None:
        vocabulary, floors = fit_vocabulary(tables), fit_floors(tables)
        fitted = fit_base(config, runs["train"], split.train[0])
    else:
        vocabulary, (fitted, floors) = joined(earlier.vocabulary, fit_vocabulary(tables)), earlier.base
    moved = None if source is None else moved_runs(source, [*runs["train"], *runs["val"]])
    encoder = Encoder(models.AnalyticPredictor(fitted), vocabulary, floors, Path(config.cache_dir).expanduser(), moved)
    raw = {part: encoder.steps(part, runs[part], mapped) for part in PARTS}
    single = encoder.steps("intervals", result["val"], mapped)
    normalizer = fit_normalizer(step.data for step in raw["train"])
    if earlier is not None:
        normalizer = widened(earlier.normalizer, normalizer)
    *parts, recordings = (tuple(replace(step, data=normalizer.apply(step.data)) for step in of_part)
                          for of_part in (*raw.values(), single))  # fmt: skip
    steps = dict(zip(PARTS, parts, strict=True))
    given = {part: content_digest([_predicted(step) for step in steps[part]]) for part in PARTS}
    learned_from = content_digest(
        given["train"], given["val"], [_predicted(step) for step in recordings], vocabulary, floors, normalizer
    )
    whole = content_digest(learned_from, given["test"])
    factors = None if moved is None else moved.factors
    return PreparedData(
        split, steps, recordings, vocabulary, fitted, floors, normalizer, whole, learned_from, machine_scales, factors
    )


def _check_kinds(config: DataConfig, runs: Mapping[str, Sequence[RunStep]], earlier: Earlier | None) -> None:
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
    machine = (
        graph.world_size,
        graph.ranks,
        graph.stands_for,
        step.cluster.device.name,
        step.cluster.intra,
        graph.tables,
    )
    measured = (step.run, step.workload, step.step_us, graph.nodes, graph.edges, graph.cross_step)
    return (*measured, machine, packed(step.data), estimates)


@dataclass(frozen=True)
class Encoder:
    """Run -> HeteroData, cached on disk."""

    analytic: models.AnalyticPredictor
    vocabulary: Vocabulary
    floors: TypedFloors
    cache_dir: Path
    source: MovedRuns | None = None

    def steps(self, part: str, runs: Sequence[RunStep], mapped: Mapped) -> tuple[Step, ...]:
        """The runs' steps with raw (not normalized) features, which take long the first time."""
        encoded = mapped(self.encoded, runs, f"building features, {part}")
        return tuple(self._step(run, path) for run, path in zip(runs, encoded, strict=True))

    def encoded(self, run: RunStep) -> Path:
        """The file of the run's features."""
        moved_us = None if self.source is None else self.source.moved_us(run)
        path = self.path_of(run, moved_us)
        cached_graph(path, lambda: features(
            run.graph, run.cluster, self.analytic.predict(run.graph, run.cluster), self.vocabulary, self.floors,
            run.isolated, moved_us))  # fmt: skip
        return path

    def _step(self, run: RunStep, path: Path) -> Step:
        """The base has the latencies that are among the features: estimating them takes longer than reading."""
        data, latency_us = read_graph(path), np.zeros(run.graph.num_nodes)  # hardware nodes, not in `data`, take none
        for store in data.node_stores:
            latency_us[store.node_id.numpy()] = store.analytic_us.numpy()
        base = self.analytic.with_latencies(run.graph, run.cluster, latency_us)
        return Step(run.run, run.graph, data, run.cluster, base, run.step_us, run.workload)

    def path_of(self, run: RunStep, moved_us: np.ndarray | None = None) -> Path:
        """The file of its features, named by all that they depend on."""
        graph = run.graph
        measured = content_digest(graph.nodes["latency_us"].to_numpy(), run.isolated, moved_us)  # of no fingerprint
        fitted = (self.analytic, models.collective_models_of(run.cluster))  # a file of models may change under its name
        key = fingerprint(graph.fingerprint, graph.name, graph.steps, measured, run.cluster, fitted, self.vocabulary,
                          self.floors)  # fmt: skip
        return self.cache_dir / "features" / f"{key}.pt"
