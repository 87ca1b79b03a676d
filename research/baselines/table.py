"""The cells of a table, made one by one: a killed table goes on with the cells that are missing or out of date."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gnnperf.gnn.data.prepare import DataConfig, PreparedData, opened, prepare
from research.baselines.judge import Learner, fitted_record, learning_code, repeat_record
from research.evaluation.records import EvaluationRecord, Origin, read_record, record_path, write_record


@dataclass(frozen=True)
class Place:
    """Where a cell belongs."""

    folder: Path  # of the table
    row: str  # name
    seed: int | None  # None: the learner leaves nothing to chance
    part: str = "test"  # judged on


def load_split(config: DataConfig) -> PreparedData:
    """A split's data, prepared."""
    return prepare(config, *opened(config))


def ensure_record(place: Place, learner: Learner, data: PreparedData) -> bool:
    """Fit and write the cell unless it is there and up to date; whether it was made now."""
    return _ensure(place, repr(learner), data, lambda origin: fitted_record(learner, data, origin))


def ensure_floor(place: Place, data: PreparedData) -> bool:
    """The same for the noise floor; see judge.repeat_cell."""
    return _ensure(place, "another recording", data, lambda origin: repeat_record(data, origin))


def _ensure(place: Place, learner: str, data: PreparedData, make: Callable[[Origin], EvaluationRecord]) -> bool:
    origin = Origin(data.split.axis, place.part, place.row, place.seed, data.fingerprint, learner, learning_code())
    current = is_current(place.folder, origin)
    if not current:
        write_record(make(origin), place.folder)
    return not current


def is_current(folder: Path, origin: Origin) -> bool:
    """Whether a cell of the same data, learner and part is there. Other code is given (see `codes`), not refused."""
    path = record_path(folder, origin.split, origin.row, origin.seed)
    return path.is_file() and replace(read_record(path).origin, code=origin.code) == origin
