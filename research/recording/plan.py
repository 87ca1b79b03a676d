"""A plan: which runs a data set consists of, which of them differ by one known change, and how they are split."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from research.evaluation.pairs import Change
from research.recording.run import RunSpec, Steps

Split = Mapping[str, Sequence[str]]  # train, val, test -> names of runs


def split_by(runs: Iterable[RunSpec], part_of: Callable[[RunSpec], str]) -> Split:
    """Names of runs by part, in their order; a part may be empty."""
    split: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for run in runs:
        split[part_of(run)].append(run.name)
    return split


@dataclass(frozen=True)
class Pair:
    """An intervention: B is A with one known change."""

    change: Change  # which
    # a, b: runs of the plan
    a: RunSpec
    b: RunSpec
    edit: Mapping[str, object]  # what the change does to the graph of A, as `gnnperf interventions` reads it


@dataclass(frozen=True)
class Plan:
    """A data set to record."""

    name: str  # of the data set, and of its folder
    runs: tuple[RunSpec, ...]  # in the order they are recorded; names are unique
    steps: Steps  # of every run
    splits: Mapping[str, Split]  # axis -> parts; a run is in one part of an axis only, with all its repeats
    axes: Mapping[str, str]  # axis -> what differs between its parts, for the card
    pairs: tuple[Pair, ...] = ()  # interventions among the runs. Runs that are in no split serve them only.
    repeats: int = 2  # how often every run is recorded
    min_gap_s: float = 1800.0  # between the repeats of a run
    # of the probe's median between before and after a recording; beyond it the recording is rejected
    max_drift: float = 0.03
    max_attempts: int = 4  # how often a rejected recording is made again before the plan goes on without it
    calibrate_minutes: float = 0.0  # how long the device is calibrated before the first recording; 0: it is not

    def recordings(self) -> list[tuple[RunSpec, int]]:
        """Every run once, then every run again: repeats are as far apart as they can be."""
        return [(spec, repeat) for repeat in range(1, self.repeats + 1) for spec in self.runs]


def recording_name(run: str, repeat: int) -> str:
    """Folder of one recording within the data set: <run>/<repeat>."""
    return f"{run}/{repeat}"
