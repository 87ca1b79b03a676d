"""Runs -> a data set on disk that training reads (data.stored); workers make everything that takes long.

    recordings --typical_steps--> steps, vocabularies --fitted--> constants, floors --encoded--> features, statistics

What is there already is not made again, so a build that was stopped goes on. A recording that cannot be used is named
with its reason, and the others are built.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError, each, write_bytes
from gnnperf.gnn.data.cache import cached_graph, code_fingerprint, content_digest, fingerprint
from gnnperf.gnn.data.floors import fit_floors
from gnnperf.gnn.data.normalizer import FeatureStatistics, feature_statistics, fit_normalizer
from gnnperf.gnn.data.prepare import Encoder, check_kinds, fit_base, opened, sampled
from gnnperf.gnn.data.recordings import processors_of
from gnnperf.gnn.data.runs import RunStep, merged, read_run, run_of, typical, workload_of
from gnnperf.gnn.data.segments import SEGMENT_HOPS, WORK, SegmentedGraph
from gnnperf.gnn.data.splits import PARTS
from gnnperf.gnn.data.stored import (
    BUILD,
    INTERVALS,
    Build,
    Settings,
    StoredRun,
    is_build,
    manifest_of,
    read_step,
    segment_path,
    settings_of,
    write_step,
)
from gnnperf.gnn.data.vocabulary import Vocabulary, fit_vocabulary, united
from gnnperf.gnn.settings import DataConfig
from gnnperf.graph import storage
from gnnperf.hardware import ClusterSpec, DeviceSpec

REASON_CHARS = 500


@dataclass(frozen=True)
class Failed:
    """Instead of a result."""

    reason: str


Mapped = Callable[[Callable[[Any], Any], Sequence[Any], str], list[Any]]  # function, its arguments, what it does


def attempted(function: Callable[[Any], Any], item: Any) -> Any:
    """The result, or why there is none: one bad recording must not end a build of thousands."""
    try:
        return function(item)
    except Exception as error:
        text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        return Failed(text[:REASON_CHARS])


def in_turn(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> list[Any]:
    """What `attempted` returns for each item, in this process."""
    return [attempted(function, item) for item in each(items, what, "runs")]


@dataclass(frozen=True)
class Recipe:
    """What every task is given."""

    raw: Path  # the recordings
    out: Path
    settings: Settings
    hardware: DeviceSpec | None
    cluster: ClusterSpec | None

    def read(self, stored: StoredRun) -> RunStep:
        """A step that is there."""
        return self.read_step(stored.step, stored.run, stored.workload)

    def read_step(self, key: str, run: str, workload: str) -> RunStep:
        """The step of a key."""
        return read_step(self.out / "steps" / key, run, workload, self.hardware, self.cluster)


def check_folders(raw: Path, out: Path) -> None:
    """Refuse an output folder in which anything of the user's could be replaced."""
    inner, outer = out.resolve(), raw.resolve()
    if inner == outer or outer in inner.parents or inner in outer.parents:
        raise InputError("overlaps with the folder of the recordings", where=f"--out {out}", allowed="a new folder")
    if is_build(out):
        manifest_of(out)
    elif out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InputError("is not empty, and not a build", where=f"--out {out}", allowed="a new folder, or a build's")
    if is_build(raw):
        raise InputError("is a build already", where=str(raw), allowed="a folder of recordings")


def build_data(
    config: DataConfig, hardware: DeviceSpec | None = None, cluster: ClusterSpec | None = None, num_layers: int = 0,
    mapped: Mapped = in_turn,
) -> Build:  # fmt: skip
    """Build the recordings of `config.path` into the folder `config.cache_dir`.

    Args:
        config: data set and settings of the training.
        hardware: the device of all runs; None: each trace's own.
        cluster: its links and hosts; None: the default of the device.
        num_layers: of the network, which decide what segments see beyond their own nodes.
        mapped: calls `attempted` for each item, wherever; a result, or Failed, per item in their order.

    Raises:
        InputError: folders that overlap, settings without a build, or no run to train or validate on.
    """
    raw, out = Path(config.path).expanduser(), Path(config.cache_dir).expanduser()
    check_folders(raw, out)
    for name in ("test_path", "train_paths", "source_path"):
        if getattr(config, name):
            raise InputError("a build is of one data set", where=f"data.{name}", remedy="leave it out")
    split, _ = opened(config, hardware, cluster)
    result = Build(code_fingerprint(), settings_of(config, hardware, cluster, min(num_layers, SEGMENT_HOPS)))
    if not is_build(out):
        _write(result, out)
    recipe = Recipe(raw.resolve(), out.resolve(), result.settings, hardware, cluster)

    units = [(part, run, names) for part in PARTS for run, names in _by_run(split.part(part)).items()]
    failed, runs, words = dict[str, str](), list[StoredRun](), list[Vocabulary]()
    for unit, made in zip(
        units, mapped(partial(typical_steps, recipe=recipe), units, "reading recordings"), strict=True
    ):
        if isinstance(made, Failed):
            failed |= dict.fromkeys(unit[2], made.reason)
            continue
        runs += made[0]
        words += made[1]
        failed |= made[2]
    train = _required(runs, failed)
    check_kinds(config, {part: [(one.run, one.device_kind) for one in runs if one.part == part] for part in PARTS})

    vocabulary = united(words)
    fit = partial(_fitted, recipe=recipe, config=config, recording=split.train[0])
    (fitted,) = mapped(fit, [list(sampled(train))], "fitting the analytical base")
    if isinstance(fitted, Failed):
        raise InputError(fitted.reason, where=str(raw))
    constants, floors = fitted
    encoder = Encoder(AnalyticPredictor(constants), vocabulary, floors, recipe.out)
    statistics, encoded_runs = list[FeatureStatistics](), list[StoredRun]()
    results = mapped(partial(encoded, recipe=recipe, encoder=encoder), runs, "building features")
    for stored, made in zip(runs, results, strict=True):
        if isinstance(made, Failed):
            failed |= dict.fromkeys(stored.recordings, made.reason)
            continue
        encoded_runs.append(made[0])
        statistics += made[1]
    _required(encoded_runs, failed)
    held = io.BytesIO()
    torch.save({"vocabulary": asdict(vocabulary), "constants": asdict(constants), "floors": asdict(floors),
                "normalizer": vars(fit_normalizer(statistics))}, held)  # fmt: skip
    name = f"fitted-{content_digest(held.getvalue())}.pt"
    write_bytes(out / name, held.getvalue())
    parts = {part: tuple(name for name in split.part(part) if name not in failed) for part in PARTS}
    processors = processors_of(raw / name for name in parts["val"])
    result = replace(result, split=replace(split, **parts), runs=tuple(encoded_runs), fitted=name, failed=failed,
                     processors=processors)  # fmt: skip
    _write(result, out)
    return result


def _write(result: Build, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / BUILD, msgspec.json.encode(result))


def _by_run(recordings: Sequence[str]) -> dict[str, tuple[str, ...]]:
    units: dict[str, tuple[str, ...]] = {}
    for name in recordings:
        units[run_of(name)] = (*units.get(run_of(name), ()), name)
    return units


def _required(runs: Sequence[StoredRun], failed: dict[str, str]) -> list[StoredRun]:
    """The training runs; refuses too few."""
    for part in ("train", "val"):
        if not any(one.part == part for one in runs):
            reasons = "".join(f"\n  {name}: {why}" for name, why in list(failed.items())[:3])
            raise InputError(f"no run of part {part!r} can be used:{reasons}", where="gnnperf data build")
    return [one for one in runs if one.part == "train"]


def typical_steps(
    unit: tuple[str, str, tuple[str, ...]], recipe: Recipe
) -> tuple[list[StoredRun], list[Vocabulary], dict[str, str]]:
    """Write the typical steps of a run; returns them, the words of a training run, and recordings without one.

    A run that is trained or validated on is one step of all its recordings. Tested ones are steps of their own, and so
    are validated ones for intervals.
    """
    part, run, names = unit
    failed, single = dict[str, str](), dict[str, tuple[str, RunStep]]()
    for name in names:
        made = attempted(partial(_typical_step, recipe=recipe), name)
        if isinstance(made, Failed):
            failed[name] = made.reason
        else:
            single[name] = made
    parts = {"train": [], "val": [INTERVALS], "test": ["test"]}[part]
    stored = [_stored(of, name, (name,), *single[name]) for of in parts for name in single]
    words: list[Vocabulary] = []
    if single and part != "test":
        keys, steps = zip(*single.values(), strict=True)
        key = keys[0] if len(keys) == 1 else fingerprint(*keys)
        (whole,) = merged(steps)
        if not (recipe.out / "steps" / key).is_dir():
            write_step(whole, recipe.out / "steps" / key)
        stored.append(_stored(part, run, tuple(single), key, whole))
        words = [fit_vocabulary([whole.graph.nodes])] if part == "train" else []
    return stored, words, failed


def _typical_step(name: str, recipe: Recipe) -> tuple[str, RunStep]:
    """Key and typical step of one recording, which is on disk then."""
    given, bucket_bytes = (recipe.hardware, recipe.cluster), recipe.settings.bucket_bytes
    key = fingerprint(storage.fingerprint([recipe.raw / name]), given, bucket_bytes)
    folder = recipe.out / "steps" / key
    if not folder.is_dir():
        write_step(typical(read_run(recipe.raw, name, None, *given, bucket_bytes)), folder)
    return key, recipe.read_step(key, name, workload_of(recipe.raw / name))


def _stored(part: str, run: str, recordings: tuple[str, ...], key: str, step: RunStep) -> StoredRun:
    num_nodes = int(np.isin(step.graph.nodes["node_type"].astype(str), WORK).sum())
    return StoredRun(part, run, recordings, key, num_nodes, step.step_us, step.workload, step.cluster.device.kind)


def _fitted(sample: Sequence[StoredRun], recipe: Recipe, config: DataConfig, recording: str) -> tuple[Any, Any]:
    """Constants and floors of the analytical base."""
    steps = [recipe.read(stored) for stored in sample]
    return fit_base(config, steps, recording), fit_floors([step.graph.nodes for step in steps])


def encoded(stored: StoredRun, recipe: Recipe, encoder: Encoder) -> tuple[StoredRun, list[FeatureStatistics]]:
    """Write the features of a step, and its segments where it is too large for one example.

    Returns the step with the key of its features, and their statistics if it is trained on.
    """
    step = recipe.read(stored)
    path, data = encoder.path_of(step), encoder.encode(step).data
    windows: list[np.ndarray] = []
    if stored.num_nodes > recipe.settings.max_nodes and stored.part in ("train", "val"):
        whole = SegmentedGraph(data, recipe.settings.num_hops)
        windows = whole.windows(recipe.settings.max_nodes)
        for number, window in enumerate(windows):
            cached_graph(segment_path(path, recipe.settings, number), partial(whole.segment, window))
    made = replace(stored, features=path.stem, num_segments=len(windows))
    return made, [feature_statistics(data)] if stored.part == "train" else []
