"""A data set of many runs that is made ahead, by workers, and read from disk in training.

    build.json            what the folder holds, written last; before, that it will be a build
    steps/<key>/          typical step of a recording, or of a run: graph and labels
    features/<key>.pt     raw features of a step, or of a segment of one
    cards/<recording>/    cards of the validation recordings
    fitted-<key>.pt       vocabulary, constants, floors, normalizer

A key is a hash of all that the content depends on: what is there is not made again, and names of runs cannot clash.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec
import torch
from torch_geometric.data import HeteroData

from gnnperf.analytic import AnalyticPredictor, constants_from_plain
from gnnperf.core import Failed, InputError, Mapped, attempted, untrusted, write_bytes
from gnnperf.gnn.data.cache import cached_graph, code_fingerprint, content_digest, fingerprint, read_graph
from gnnperf.gnn.data.floors import TypedFloors, fit_floors
from gnnperf.gnn.data.normalizer import Normalizer, Statistics, normalizer_of, statistics_of
from gnnperf.gnn.data.prepare import Earlier, Encoder, PreparedData, Step, fit_base, opened, sampled
from gnnperf.gnn.data.recordings import CARD
from gnnperf.gnn.data.runs import STEPS, Given, Recorded, RunStep, merged, read_step, run_of, write_step
from gnnperf.gnn.data.segments import SEGMENT_HOPS, SegmentedGraph
from gnnperf.gnn.data.splits import PARTS, SPLITS, Split, drawn_parts
from gnnperf.gnn.data.vocabulary import Vocabulary, fit_vocabulary, united
from gnnperf.gnn.settings import DataConfig
from gnnperf.graph import Prediction

BUILD, CARDS = "build.json", "cards"
INTERVALS = "intervals"  # part of single recordings of the validation runs
READ, MAX_LISTED = 4, 20  # steps that stay in memory; failures in a message
AGAIN = "run `gnnperf data build` again"
ANEW = "build in a new folder"
MAX_US = 1e14
# What is read from BUILD is checked against these.
Key = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
Features = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}(-[0-9]+){0,3}\.pt\Z")]
Fitted = Annotated[str, msgspec.Meta(pattern=r"^(fitted-[0-9a-f]{32}\.pt)?\Z")]
Positive = Annotated[int, msgspec.Meta(gt=0)]


@dataclass(frozen=True)
class StoredRun:
    """A step on disk."""

    part: Annotated[str, msgspec.Meta(pattern=r"^(train|val|test|intervals)\Z")]  # of the split, or INTERVALS
    run: str  # its name
    step: Key  # of its folder
    num_nodes: Positive
    step_us: Annotated[float, msgspec.Meta(gt=0, le=MAX_US)]  # measured
    workload: str
    device_kind: str
    features: Features = ""  # file
    examples: Annotated[tuple[Features, ...], msgspec.Meta(min_length=1)] = ()  # the same, or the files of its segments


@dataclass(frozen=True)
class Settings:
    """What a training repeats."""

    axis: str
    op_tables: tuple[str, ...]
    hardware: str
    cluster: str
    max_nodes: Positive  # of a segment
    num_hops: Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class Build:
    """The content of BUILD."""

    code: str  # that it was made by
    settings: Settings
    split: Split | None = None  # None: it is not finished
    runs: tuple[StoredRun, ...] = ()
    fitted: Fitted = ""  # file


def manifest_of(folder: Path) -> Build | None:
    """What a build holds; None: another folder."""
    path = folder / BUILD
    with untrusted.reading(path, "is not of `gnnperf data build`, or damaged", remedy=ANEW):
        build = msgspec.json.decode(path.read_bytes(), type=Build) if path.is_file() else None
        split = Split("", (), (), ()) if build is None or build.split is None else build.split
        for name in (*split.train, *split.val, *split.test):
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise InputError(f"recording {name[:80]!r} is outside the folder", where=str(path), remedy=ANEW)
        return build


def cards_of(folder: Path) -> Path:
    """The folder of recordings that have cards."""
    return folder if manifest_of(folder) is None else folder / CARDS


def as_built(config: DataConfig, given: Iterable[str]) -> DataConfig:
    """The configuration with the settings of the build that it names, except for `given` keys of train.py."""
    build = manifest_of(Path(config.path).expanduser())
    if build is None:
        return config
    made = {**vars(build.settings), "op_tables": list(build.settings.op_tables)}
    made = {name: made[name] for name in ("axis", "op_tables")}
    made["max_nodes_per_batch"] = build.settings.max_nodes * config.batch_size
    return replace(config, **{name: value for name, value in made.items() if f"data.{name}" not in set(given)})


@dataclass(frozen=True)
class _Reader:
    """What reads a build, and keeps the last READ results."""

    segments: tuple[int, int]  # most nodes, hops
    graph: Callable[[str], HeteroData]  # file -> normalized
    step: Callable[[StoredRun], RunStep]
    base: Callable[[StoredRun], Prediction]


class StoredStep(Step):
    """A step that is read when it is requested."""

    def __init__(self, stored: StoredRun, reader: _Reader) -> None:
        vars(self).update(run=stored.run, step_us=stored.step_us, workload=stored.workload, of=stored, reader=reader)

    def __getattr__(self, name: str) -> Any:
        if name in ("graph", "cluster"):
            return getattr(self.reader.step(self.of), name)
        if name in ("data", "base"):
            return self.reader.graph(self.of.features) if name == "data" else self.reader.base(self.of)
        raise AttributeError(name)

    @property
    def num_nodes(self) -> int:
        """Nodes that the network is given."""
        return int(self.of.num_nodes)

    def examples(self, max_nodes: int, num_hops: int) -> Sequence[Callable[[], HeteroData]]:
        """As of any step; refuses segments of another size than on disk."""
        now, made = (max_nodes, num_hops), self.reader.segments
        if now != made and self.num_nodes > min(max_nodes, made[0]):
            raise InputError(f"segments of {now[0]} nodes and {now[1]} hops", where="data.max_nodes_per_batch",
                             allowed=f"{made[0]} and {made[1]}, as built", remedy=AGAIN)  # fmt: skip
        return [partial(self.reader.graph, name) for name in self.of.examples]


def read_build(config: DataConfig, build: Build, given: Given, earlier: Earlier | None) -> PreparedData:
    """The data of a build, in a time that does not depend on what steps hold; fingerprints change with the code."""
    folder, now = Path(config.path).expanduser(), _settings(config, given, 0)
    if build.split is None or build.code != code_fingerprint():
        what = "is not finished" if build.split is None else "was made by other code, constants or libraries"
        raise InputError(f"the build {what}", where=str(folder), remedy=AGAIN)
    if earlier is not None:
        raise InputError("a build is for a new network", where="init_from", remedy="train on the recordings")
    for name in ("axis", "cluster", "hardware", "op_tables"):
        ours, theirs = getattr(now, name), getattr(build.settings, name)
        if ours != theirs:
            raise InputError(f"{name} is {ours}"[:200], where=str(folder), remedy=AGAIN,
                             allowed=f"{theirs}"[:200] + ", as built")  # fmt: skip
    with untrusted.reading(folder / build.fitted, "is damaged", remedy=AGAIN):
        fitted = torch.load(folder / build.fitted, weights_only=True)
        constants = constants_from_plain(fitted["constants"], build.fitted)
        vocabulary, floors = Vocabulary(**fitted["vocabulary"]), TypedFloors(**fitted["floors"])
        analytic, normalizer = AnalyticPredictor(constants), Normalizer(**fitted["normalizer"])

    def normalized(name: str) -> HeteroData:
        with untrusted.reading(folder / "features" / name, "is damaged", remedy=f"remove it; {AGAIN}"):
            return normalizer.apply(read_graph(folder / "features" / name))

    graph = lru_cache(READ)(normalized)
    step = lru_cache(READ)(lambda stored: _read_step(folder, stored, given))
    base = lru_cache(READ)(lambda stored: analytic.predict(step(stored).graph, step(stored).cluster))
    reader = _Reader((build.settings.max_nodes, build.settings.num_hops), graph, step, base)
    runs = {part: [one for one in build.runs if one.part == part] for part in (*PARTS, INTERVALS)}
    if not all(runs[part] for part in ("train", "val", INTERVALS)):
        raise InputError("has no run to train or to validate on", where=str(folder / BUILD), remedy=ANEW)
    steps = {part: tuple[Step, ...](StoredStep(one, reader) for one in stored) for part, stored in runs.items()}
    recordings = tuple(sampled(steps.pop(INTERVALS)))
    learned_from = content_digest(build.fitted, runs["train"], runs["val"])
    whole = content_digest(learned_from, runs["test"])
    return PreparedData(build.split, steps, recordings, vocabulary, constants, floors, normalizer, whole,
                        learned_from, {})  # fmt: skip


def _settings(config: DataConfig, given: Given, num_layers: int) -> Settings:
    for name in ("test_path", "train_paths", "source_path"):
        if getattr(config, name):
            raise InputError("a build is of one data set", where=f"data.{name}", remedy="train on the recordings")
    max_nodes, num_hops = config.max_nodes_per_batch // config.batch_size, min(num_layers, SEGMENT_HOPS)
    return Settings(config.axis, tuple(config.op_tables), repr(given[0]), repr(given[1]),
                    max_nodes, num_hops)  # fmt: skip


def _read_step(out: Path, stored: StoredRun, given: Given) -> RunStep:
    folder = out / STEPS / stored.step
    return read_step(folder, stored.run, given, stored.workload, remedy=f"remove it; {AGAIN}")


# Building: recordings --_typical_steps--> steps, words --_fitted--> base --_encoded--> features, statistics


def build_data(config: DataConfig, given: Given, num_layers: int, mapped: Mapped) -> tuple[Split, dict[str, str]]:
    """Build the recordings of `config.path` in the folder `config.cache_dir`.

    Segments see no farther than the `num_layers` of the network. `mapped` is `attempted` of a function for each of some
    items, in their order; its last argument names the work. Returns what was built, and recording -> why it cannot be
    used. A split that is drawn is drawn without such.
    """
    raw, out = (Path(path).expanduser().resolve() for path in (config.path, config.cache_dir))
    is_foreign = out.exists() and manifest_of(out) is None and not (out.is_dir() and not any(out.iterdir()))
    if is_foreign or raw == out or raw in out.parents or out in raw.parents or manifest_of(raw) is not None:
        raise InputError("is not empty, or overlaps with the recordings", where=str(out),
                         allowed="a new folder, or one that was built from recordings")  # fmt: skip
    result = Build(code_fingerprint(), _settings(config, given, num_layers))
    tables = [str(Path(path).expanduser().resolve()) for path in config.op_tables]
    config = replace(config, path=str(raw), cache_dir=str(out), op_tables=tables)
    split, failed = opened(config, *given)[0], dict[str, Failed]()
    with untrusted.reading(out, "cannot be written", remedy="choose a folder that you may write to"):
        out.mkdir(parents=True, exist_ok=True)
    if manifest_of(out) is None:
        write_bytes(out / BUILD, msgspec.json.encode(result))

    def tried(function: Callable[..., Any], items: Sequence[Any], what: str) -> list[Any]:
        return mapped(partial(_of_code, function=function, code=result.code), items, what)

    names = _by_run(name for part in PARTS for name in split.part(part))
    steps: dict[str, list[StoredRun]] = {}  # run -> that of all its recordings, those of each
    words: dict[str, Vocabulary] = {}

    def read(runs: Sequence[list[str]], what: str, *before: Callable[[], Any]) -> list[Any]:
        """Typical steps of some runs; returns what the calls `before` give, which begin first."""
        made = tried(_called, [*before, *(partial(_typical_steps, run, config, given) for run in runs)], what)
        for run, of_run in zip(runs, made[len(before) :], strict=True):
            if isinstance(of_run, Failed):
                failed.update(dict.fromkeys(run, of_run))
            else:
                steps[run_of(run[0])], words[run_of(run[0])], failed_ones = of_run
                failed.update(failed_ones)
        return made[: len(before)]

    def fit_of(split: Split) -> partial[Any]:
        sample = sampled([steps[run][0] for run in _by_run(split.train)])
        return partial(_fitted, sample, config, given, split.train[0])

    in_training = [names[run] for run in _by_run(split.train)]
    read(in_training, "reading training runs")
    # One worker fits while others read what is held out; again, if unusable recordings change what is fitted.
    early = [fit_of(split)] if not failed else []
    fitted = read([one for one in names.values() if one not in in_training], "fitting, reading held-out runs", *early)
    _require_inputs(failed, out)
    split = _without(split, failed, raw)
    train, val, test = ([steps[run] for run in _by_run(split.part(part))] for part in PARTS)
    runs = [replace(one[0], part=part) for part, of in (("train", train), ("val", val)) for one in of]
    for part, of in ((INTERVALS, val), ("test", test)):
        runs += [replace(single, part=part) for one in of for single in one[1:]]
    if len({one.device_kind for one in runs}) > 1:
        raise InputError("runs on GPUs and on CPUs", where=str(raw), remedy="split them into two data sets")
    vocabulary = united([words[run] for run in _by_run(split.train)])
    fit = fit_of(split)
    (base,) = fitted if [fit.args] == [one.args for one in early] else tried(_called, [fit], "fitting")
    if isinstance(base, Failed):
        raise InputError(base.reason, where=str(raw), remedy=AGAIN)
    encoder = Encoder(AnalyticPredictor(base[0]), vocabulary, base[1], out)
    encode = partial(_encoded, encoder=encoder, settings=result.settings, given=given)
    encoded: list[tuple[StoredRun, Statistics | None]] = []
    for one, made in zip(runs, tried(encode, runs, "building features"), strict=True):
        if isinstance(made, Failed):
            failed.update(dict.fromkeys(names[run_of(one.run)], made))
        else:
            encoded.append(made)
    _require_inputs(failed, out)
    split, held = _without(split, failed, None), io.BytesIO()
    normalizer = normalizer_of(statistics for _, statistics in encoded if statistics is not None)
    torch.save({"vocabulary": asdict(vocabulary), "constants": asdict(base[0]), "floors": asdict(base[1]),
                "normalizer": vars(normalizer)}, held)  # fmt: skip
    name = f"fitted-{content_digest(held.getvalue())}.pt"
    write_bytes(out / name, held.getvalue())
    for held_out in (name for name in split.val if (raw / name / CARD).is_file()):  # names the processors
        (out / CARDS / held_out).mkdir(parents=True, exist_ok=True)
        write_bytes(out / CARDS / held_out / CARD, (raw / held_out / CARD).read_bytes())
    whole = _by_run(name for part in PARTS for name in split.part(part))
    built = tuple(one for one, _ in encoded if run_of(one.run) in whole)
    write_bytes(out / BUILD, msgspec.json.encode(replace(result, split=split, runs=built, fitted=name)))
    return split, {name: one.reason for name, one in failed.items()}


def _called(call: Callable[[], Any]) -> Any:
    return call()


def _of_code(item: Any, function: Callable[[Any], Any], code: str) -> Any:
    """The result of a worker that runs the code of the command."""
    if code_fingerprint() != code:
        raise RuntimeError("a worker has other code, constants or libraries than the command")
    return function(item)


def _require_inputs(failed: Mapping[str, Failed], out: Path) -> None:
    """Refuse to go on without recordings that failed for another reason than their content."""
    reasons = [f"\n  {name}: {one.reason}" for name, one in failed.items() if not one.is_input]
    if reasons:
        raise InputError(f"is not finished, {len(reasons):,} recordings failed:{''.join(reasons[:MAX_LISTED])}",
                         where=str(out), remedy=AGAIN)  # fmt: skip


def _by_run(recordings: Iterable[str]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for name in recordings:
        result.setdefault(run_of(name), []).append(name)
    return result


def _without(split: Split, failed: Mapping[str, Failed], raw: Path | None) -> Split:
    """The split of what can be used, drawn again where it was drawn."""
    parts = {part: [name for name in split.part(part) if name not in failed] for part in PARTS}
    if raw is not None and failed and not (raw / SPLITS).is_file():
        parts = drawn_parts(raw, split.axis, failed)
    if not (parts["train"] and parts["val"]):
        reasons = "".join(f"\n  {name}: {one.reason}" for name, one in list(failed.items())[:3])
        raise InputError(f"no run to train or to validate on can be used:{reasons}", where="gnnperf data build")
    return Split(split.axis, **{part: tuple(names) for part, names in parts.items()})


def _typical_steps(
    names: list[str], config: DataConfig, given: Given
) -> tuple[list[StoredRun], Vocabulary, dict[str, Failed]]:
    """Write typical steps of a run, of all recordings together and of each; words, and why recordings have none."""
    out = Path(config.cache_dir)
    recorded = Recorded(dict.fromkeys(names, Path(config.path)), out, given)
    results = {name: attempted(name, recorded.typical) for name in names}
    failed = {name: one for name, one in results.items() if isinstance(one, Failed)}
    made = {name: one for name, one in results.items() if name not in failed}
    if not made:
        return [], fit_vocabulary([]), failed
    keys, steps = zip(*made.values(), strict=True)
    (whole,), key = merged(steps), keys[0] if len(keys) == 1 else fingerprint(*keys)
    if not (out / STEPS / key).is_dir():
        write_step(whole, out / STEPS / key)
    of = [(whole.run, key, whole), *((name, *one) for name, one in made.items())]
    stored = [StoredRun("", run, at, step.graph.num_nodes, step.step_us, step.workload, step.cluster.device.kind)
              for run, at, step in of]  # fmt: skip
    return stored, fit_vocabulary([whole.graph.nodes]), failed


def _fitted(sample: Sequence[StoredRun], config: DataConfig, given: Given, recording: str) -> tuple[Any, Any]:
    """Constants and floors of the analytical base."""
    steps = [_read_step(Path(config.cache_dir), stored, given) for stored in sample]
    return fit_base(config, steps, recording), fit_floors([step.graph.nodes for step in steps])


def _encoded(
    stored: StoredRun, encoder: Encoder, settings: Settings, given: Given
) -> tuple[StoredRun, Statistics | None]:
    """Write features of a step, and of its segments where it is too large; returns statistics of a training step."""
    step = _read_step(encoder.cache_dir, stored, given)
    path, max_nodes, num_hops = encoder.encoded(step), settings.max_nodes, settings.num_hops
    data, examples = read_graph(path), [path.name]
    if data.num_nodes > max_nodes and stored.part in ("train", "val"):
        whole = SegmentedGraph(data, num_hops)
        windows = dict(enumerate(whole.windows(max_nodes)))
        examples = [f"{path.stem}-{max_nodes}-{num_hops}-{number}.pt" for number in windows]
        for name, window in zip(examples, windows.values(), strict=True):
            cached_graph(path.with_name(name), partial(whole.segment, window))
    made = replace(stored, num_nodes=data.num_nodes, features=path.name, examples=tuple(examples))
    return made, statistics_of(data) if stored.part == "train" else None
