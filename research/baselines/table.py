"""The cells of a table, made one by one: a killed table goes on with the cells that are missing or out of date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from gnnperf.gnn.data.prepare import DataConfig, PreparedData, opened, prepare
from research.baselines.judge import Learner, fitted_record, learning_code, repeat_record
from research.evaluation.records import Origin, read_record, record_path, write_record


@dataclass(frozen=True)
class SplitData:
    """Prepared data of one split and what its recordings ran."""

    data: PreparedData  # prepared
    variant: str = ""  # what these data were given next to those of other rows; "" nothing


@dataclass(frozen=True)
class Place:
    """Where a cell belongs."""

    folder: Path  # of the table
    row: str  # name
    seed: int | None  # None: the learner leaves nothing to chance
    part: str = "test"  # judged on


def load_split(config: DataConfig, variant: str = "") -> SplitData:
    """A split's data, prepared."""
    split, read = opened(config)
    return SplitData(prepare(config, split, read), variant)


def ensure_record(place: Place, learner: Learner, split: SplitData) -> bool:
    """Fit and write the cell unless it is there and up to date.

    Returns:
        whether it was made now.
    """
    origin = _origin(place, repr(learner), split)
    if is_current(place.folder, origin):
        return False
    write_record(fitted_record(learner, split.data, origin), place.folder)
    return True


def ensure_floor(place: Place, split: SplitData) -> bool:
    """The same for the noise floor; see judge.repeat_cell."""
    origin = _origin(place, "another recording", split)
    if is_current(place.folder, origin):
        return False
    write_record(repeat_record(split.data, origin), place.folder)
    return True


def is_current(folder: Path, origin: Origin) -> bool:
    """Whether a cell of the same data, learner and part is there. Other code is given (see `codes`), not refused."""
    path = record_path(folder, origin.split, origin.row, origin.seed)
    return path.is_file() and replace(read_record(path).origin, code=origin.code) == origin


def _origin(place: Place, learner: str, split: SplitData) -> Origin:
    axis = split.data.split.axis
    return Origin(axis, place.part, place.row, place.seed, split.variant, split.data.fingerprint, learner,
                  learning_code())  # fmt: skip
