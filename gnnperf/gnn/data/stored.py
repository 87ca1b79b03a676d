"""A data set that was built ahead: steps and features on disk, read when they are requested.

    build.json                what the folder holds, written last; without runs while the first build goes on
    steps/<key>/              the typical step of a recording, or of a run: its graph and labels
    features/<key>.pt         raw features of a step, or of one of its segments
    fitted-<key>.pt           vocabulary, constants, floors and normalizer

A key is a hash of all that the content depends on, so what is there is right, and names of runs cannot clash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch_geometric.data import HeteroData

from gnnperf.analytic import AnalyticPredictor, constants_from_plain
from gnnperf.core import InputError, replacing_folder, untrusted
from gnnperf.gnn.data.cache import code_fingerprint, content_digest, read_graph
from gnnperf.gnn.data.floors import TypedFloors
from gnnperf.gnn.data.normalizer import Normalizer
from gnnperf.gnn.data.prepare import Earlier, PreparedData, Step, sampled
from gnnperf.gnn.data.recordings import Processor
from gnnperf.gnn.data.runs import IsolatedLabels, RunStep, cluster_for
from gnnperf.gnn.data.splits import PARTS, Split
from gnnperf.gnn.data.vocabulary import Vocabulary
from gnnperf.gnn.settings import DataConfig
from gnnperf.graph import Prediction, storage
from gnnperf.hardware import ClusterSpec, DeviceSpec

BUILD, LABELS = "build.json", "labels.npz"
INTERVALS = "intervals"  # part of single recordings of the validation runs
READ = 4  # steps that stay in memory
AGAIN = "run `gnnperf data build` again"


@dataclass(frozen=True)
class Settings:
    """What a build was made with."""

    axis: str
    op_tables: tuple[str, ...]
    bucket_bytes: float | None
    hardware: str  # repr of the device; "None": each trace's own
    cluster: str
    max_nodes: int  # of an example: larger steps are in segments
    num_hops: int  # that a segment sees beyond its own nodes


@dataclass(frozen=True)
class StoredRun:
    """A step on disk."""

    part: str  # of the split, or INTERVALS
    run: str  # its name
    recordings: tuple[str, ...]  # that it is of
    step: str  # key of its folder
    num_nodes: int  # that the network is given
    step_us: float  # measured
    workload: str
    device_kind: str
    features: str = ""  # key of its features
    num_segments: int = 0  # 0: it is one example


@dataclass(frozen=True)
class Build:
    """The content of BUILD."""

    code: str  # that it was made by
    settings: Settings
    split: Split | None = None  # None: it is not finished
    runs: tuple[StoredRun, ...] = ()
    fitted: str = ""  # file
    processors: tuple[Processor, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)  # recording -> why it cannot be used


def settings_of(
    config: DataConfig, hardware: DeviceSpec | None, cluster: ClusterSpec | None, num_hops: int
) -> Settings:
    """What a build of this configuration depends on, next to the recordings."""
    max_nodes = config.max_nodes_per_batch // config.batch_size
    return Settings(config.axis, tuple(config.op_tables), config.bucket_bytes, repr(hardware), repr(cluster), max_nodes,
                    num_hops)  # fmt: skip


def is_build(folder: Path) -> bool:
    """Whether `gnnperf data build` wrote the folder."""
    return (folder / BUILD).is_file()


def manifest_of(folder: Path) -> Build:
    """What a build holds."""
    with untrusted.reading(folder / BUILD, "is not of gnnperf data build, or damaged", remedy="choose another folder"):
        return msgspec.json.decode((folder / BUILD).read_bytes(), type=Build)


def write_step(step: RunStep, folder: Path) -> None:
    """Write the typical step of a run: all of it, or nothing."""
    labels: dict[str, Any] = {"usual_us": step.isolated.usual_us, "steady_us": step.isolated.steady_us,
                              "step_us": step.step_us, "cross_step": step.graph.cross_step}  # fmt: skip
    with replacing_folder(folder) as temporary:
        storage.write_files(step.graph, temporary)
        np.savez(temporary / LABELS, **labels)


def read_step(
    folder: Path, run: str, workload: str, hardware: DeviceSpec | None, cluster: ClusterSpec | None
) -> RunStep:
    """What `write_step` wrote."""
    graph = storage.read_graph(folder)
    with untrusted.reading(folder, "is damaged", remedy=f"remove it, and {AGAIN}"), np.load(folder / LABELS) as labels:
        graph = replace(graph, cross_step=labels["cross_step"])
        isolated, step_us = IsolatedLabels(labels["usual_us"], labels["steady_us"]), float(labels["step_us"])
    return RunStep(run, graph, cluster_for(graph, hardware, cluster), step_us, isolated, workload)


def segment_path(features: Path, settings: Settings, number: int) -> Path:
    """The file of one segment of a step."""
    return features.with_name(f"{features.stem}-{settings.max_nodes}-{settings.num_hops}-{number}.pt")


class StoredStep(Step):
    """A step that is read when it is requested; the last READ of a data set stay in memory."""

    def __init__(self, stored: StoredRun, reader: _Reader) -> None:
        own = {"run": stored.run, "step_us": stored.step_us, "workload": stored.workload}
        vars(self).update(own, stored=stored, reader=reader)

    graph = property(lambda self: self.reader.step(self.stored).graph)  # type: ignore[assignment]
    cluster = property(lambda self: self.reader.step(self.stored).cluster)  # type: ignore[assignment]
    base = property(lambda self: self.reader.base(self.stored))  # type: ignore[assignment]
    data = property(lambda self: self.reader.data(self.stored))  # type: ignore[assignment]
    num_nodes = property(lambda self: self.stored.num_nodes)

    def examples(self, max_nodes: int, num_hops: int) -> Sequence[Callable[[], HeteroData]]:
        """As of any step; refuses segments of another size than on disk."""
        stored, reader = vars(self)["stored"], vars(self)["reader"]
        if stored.num_nodes <= max_nodes:
            return [lambda: self.data]
        made = reader.settings
        if (max_nodes, num_hops) != (made.max_nodes, made.num_hops):
            raise InputError(f"examples of {max_nodes} nodes that see {num_hops} hops", where="data.max_nodes_per_batch",
                             allowed=f"{made.max_nodes} per step of a batch and {made.num_hops} hops, as built",
                             remedy=f"{AGAIN} with these settings")  # fmt: skip
        return [partial(reader.segment, stored, number) for number in range(stored.num_segments)]


class _Reader:
    """Reads steps of a build."""

    def __init__(
        self, folder: Path, settings: Settings, hardware: tuple[DeviceSpec | None, ClusterSpec | None],
        analytic: AnalyticPredictor, normalizer: Normalizer,
    ) -> None:  # fmt: skip
        self.folder, self.settings, self.hardware = folder, settings, hardware
        self.analytic, self.normalizer = analytic, normalizer
        self.step, self.base, self.data = (lru_cache(READ)(read) for read in (self._step, self._base, self._data))

    def segment(self, stored: StoredRun, number: int) -> HeteroData:
        """One segment, normalized."""
        return self.normalizer.apply(read_graph(segment_path(self._features(stored), self.settings, number)))

    def _features(self, stored: StoredRun) -> Path:
        return self.folder / "features" / f"{stored.features}.pt"

    def _step(self, stored: StoredRun) -> RunStep:
        return read_step(self.folder / "steps" / stored.step, stored.run, stored.workload, *self.hardware)

    def _base(self, stored: StoredRun) -> Prediction:
        step = self.step(stored)
        return self.analytic.predict(step.graph, step.cluster)

    def _data(self, stored: StoredRun) -> HeteroData:
        return self.normalizer.apply(read_graph(self._features(stored)))


def read_build(
    config: DataConfig, hardware: DeviceSpec | None, cluster: ClusterSpec | None, earlier: Earlier | None
) -> PreparedData:
    """The data of a build; how long it takes does not depend on what steps hold.

    Its fingerprints are of the keys, and so change with the code.

    Raises:
        InputError: an unfinished build, one of other code or settings, or what no build holds.
    """
    folder = Path(config.path).expanduser()
    build = manifest_of(folder)
    if build.split is None or build.code != code_fingerprint():
        what = "is not finished" if build.split is None else "was made by other code, constants or libraries"
        raise InputError(f"the build {what}", where=str(folder), remedy=AGAIN)
    _check(config, build, settings_of(config, hardware, cluster, 0), earlier)
    with untrusted.reading(folder / build.fitted, "is damaged", remedy=AGAIN):
        fitted = torch.load(folder / build.fitted, weights_only=True)
        vocabulary, floors = Vocabulary(**fitted["vocabulary"]), TypedFloors(**fitted["floors"])
        constants = constants_from_plain(fitted["constants"], build.fitted)
        normalizer = Normalizer(**fitted["normalizer"])
    reader = _Reader(folder, build.settings, (hardware, cluster), AnalyticPredictor(constants), normalizer)
    of_parts = {part: [one for one in build.runs if one.part == part] for part in (*PARTS, INTERVALS)}
    steps = {part: tuple(StoredStep(one, reader) for one in stored) for part, stored in of_parts.items()}
    recordings = tuple(sampled(steps.pop(INTERVALS)))
    learned_from = content_digest(build.fitted, of_parts["train"], of_parts["val"])
    return PreparedData(
        build.split, steps, recordings, vocabulary, constants, floors, normalizer,
        content_digest(learned_from, of_parts["test"]), learned_from, {}, processors=build.processors,
    )  # fmt: skip


def _check(config: DataConfig, build: Build, given: Settings, earlier: Earlier | None) -> None:
    for name in ("test_path", "train_paths", "source_path"):
        if getattr(config, name):
            raise InputError("a build is of one data set", where=f"data.{name}", remedy="train on the recordings")
    if earlier is not None:
        raise InputError("a build holds the features of a new network", where="init_from",
                         remedy="train on the recordings")  # fmt: skip
    for name in ("axis", "op_tables", "bucket_bytes", "hardware", "cluster"):
        if (now := getattr(given, name)) != (made := getattr(build.settings, name)):
            key = name if name in ("hardware", "cluster") else f"data.{name}"
            raise InputError(f"{now}"[:200], where=key, allowed=f"{made}"[:200] + ", as built", remedy=AGAIN)


def build_keys(folder: Path) -> list[str]:
    """Keys of train.py that a training on this build repeats; none of another folder."""
    if not is_build(folder):
        return []
    made = asdict(manifest_of(folder).settings)
    return [f"data.{name}={json.dumps(made[name])}" for name in ("axis", "op_tables", "bucket_bytes")]
