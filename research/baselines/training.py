"""What train.py does with learners: rows of all that was fitted, as records on disk and tables on the console."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from gnnperf.core import Mapped, console, in_copies, in_turn, say
from gnnperf.gnn import Checkpoint, TrainConfig, TypedGNN, may_copy, open_log, processes
from gnnperf.gnn.data import prepare
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.training.look import Log
from gnnperf.predict import EntryConfig
from research.baselines.judge import Fit, fitted, is_repeated, judged_record, learning_code, repeat_record
from research.baselines.network import fits_of
from research.baselines.rows import TRIVIAL, requested_fits
from research.evaluation import row_errors
from research.evaluation.records import EvaluationRecord, Origin, write_record

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
