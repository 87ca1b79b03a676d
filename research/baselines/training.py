"""What train.py does with learners: rows of all that was fitted, as records on disk and tables on the console.

A table of benchmarks has its cells made one by one: a killed one goes on with those that are missing or out of date.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from gnnperf.core import Mapped, console, in_copies, in_turn, say
from gnnperf.gnn import Checkpoint, TrainConfig, TypedGNN, may_copy, open_log, processes
from gnnperf.gnn.data import prepare
from gnnperf.gnn.data.prepare import DataConfig, PreparedData
from gnnperf.gnn.training.look import Log
from gnnperf.predict import EntryConfig
from research.baselines.judge import (
    Fit,
    Learner,
    fitted,
    fitted_record,
    is_repeated,
    judged_record,
    learning_code,
    repeat_record,
)
from research.baselines.network import fits_of
from research.baselines.rows import TRIVIAL, requested_fits
from research.evaluation import row_errors
from research.evaluation.records import EvaluationRecord, Origin, read_record, record_path, write_record

Judged = Mapping[str, row_errors.Rows]  # part -> row -> its one cell


def train(config: EntryConfig) -> float | None:
    """Fit the learner that is not the network, write its records, and print its errors next to trivial predictions.

    Its validation_error; None where nothing is learned, and in all but the first of several processes.
    """
    if not processes().is_first:
        return None
    data = prepare.load_data(config.data, config.device_spec(), config.cluster_spec())
    for other, machine_scales in data.machine_scales.items():
        say(f"{other}: {machine_scales}")
    fits = requested_fits(config.learner, config.row, data, config.seed)
    judged = judged_rows(fits, data, config.evaluate_on)
    write_records(judged, cells_folder(config))
    with open_log(config) as log:
        show_rows(judged, log)
    return validation_error(judged, config.row) if fits else None


def compare_network(
    config: EntryConfig, data: PreparedData, network: TypedGNN, checkpoint: Checkpoint, fit_s: float, log: Log
) -> None:
    """Write records of a trained network and its hybrid, and print their errors with those of trivial predictions."""
    fits = fits_of(checkpoint, network, config.row, fit_s)
    judged = judged_rows(fits, data, config.evaluate_on, in_copies if may_copy(config) else in_turn)
    write_records(judged, cells_folder(config))
    show_rows(judged, log)


def training_part(config: EntryConfig) -> TrainConfig:
    """What the network is trained with, and nothing else."""
    return TrainConfig(**{f.name: getattr(config, f.name) for f in fields(TrainConfig)})


def cells_folder(config: EntryConfig) -> Path:
    """Where evaluation records go."""
    return Path(config.cells) if config.cells else Path(config.out) / "cells"


def judged_rows(fits: Mapping[str, Fit], data: PreparedData, parts: Sequence[str], mapped: Mapped = in_turn) -> Judged:
    """Rows of every part that has runs: the fitted, the trivial predictions, and where runs were repeated the floor.

    `fits` is row -> what was trained on `data`. Raises InputError for a prediction that is not finite.
    """
    fits = {**fits, **{row: fitted(learner, data, None) for row, learner in TRIVIAL.items()}}
    return {part: _rows(fits, data, part, mapped) for part in parts if data.steps[part]}


def write_records(judged: Judged, folder: Path) -> None:
    """Write <folder>/<part>/<split>/<row>/<seed>.parquet, which `gnnperf improvement <folder>/<part>` reads."""
    for part, rows in judged.items():
        for records in rows.values():
            for record in records:
                write_record(record, folder / part)


def show_rows(judged: Judged, log: Log) -> None:
    """Print errors of nodes and of steps part by part, and leave them in the log."""
    wide = console(width=row_errors.WIDTH)
    for part, rows in judged.items():
        title = f"{next(records[0].origin.split for records in rows.values())}, {part}"
        for table in (row_errors.node_table(title, rows), row_errors.step_table(title, rows)):
            wide.print(table)
        log.table(f"{part}_rows", row_errors.figures_table(rows))


def validation_error(judged: Judged, row: str) -> float:
    """GMAE of a row's node latencies on the validation runs; of one that predicts whole steps only, of those."""
    records = judged["val"][row]
    return (row_errors.node_figures(records) or row_errors.step_figures(records)).gmae


def _rows(fits: Mapping[str, Fit], data: PreparedData, part: str, mapped: Mapped) -> dict[str, list[EvaluationRecord]]:
    def origin(row: str, seed: int | None, given: str) -> Origin:
        return Origin(data.split.axis, part, row, seed, data.fingerprint, given, learning_code())

    records = mapped(lambda row: judged_record(fits[row], data, origin(row, fits[row].seed, fits[row].given)),
                     list(fits), f"judging, {part}")  # fmt: skip
    result = {row: [record] for row, record in zip(fits, records, strict=True)}
    if is_repeated(data, part):
        result[row_errors.REPEAT] = [repeat_record(data, origin(row_errors.REPEAT, None, "another recording"))]
    return row_errors.in_order(result)


@dataclass(frozen=True)
class Place:
    """Where a cell belongs."""

    folder: Path  # of the table
    row: str  # name
    seed: int | None  # None: the learner leaves nothing to chance
    part: str = "test"  # judged on


def load_split(config: DataConfig) -> PreparedData:
    """A split's data, prepared."""
    return prepare.prepare(config, *prepare.opened(config))


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
