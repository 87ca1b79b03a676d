"""Cells of a comparison: what one row (a learner), fitted with one seed, predicted for the held-out runs of a split."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf.core import InputError, require, write_bytes
from gnnperf.gnn import NAME

STEP_COLUMNS = ("recording", "run", "workload", "predicted_us", "measured_us")
NODE_COLUMNS = ("recording", "kind", "predicted_us", "measured_us")


@dataclass(frozen=True)
class Origin:
    """What a cell is of."""

    split: str  # axis of splits.json
    part: str  # which part is judged: test, or val while a model is chosen
    row: str  # name of the learner
    seed: int | None  # of the fit; None: nothing in it is chance
    data: str  # fingerprint of the prepared data
    learner: str  # all that the learner was given
    code: str  # hash of the code that learns

    def __post_init__(self) -> None:
        for name in ("split", "row"):
            require(bool(NAME.fullmatch(getattr(self, name))), name, getattr(self, name), "letters, digits, _ . + -")


@dataclass(frozen=True)
class EvaluationRecord:
    """Predictions next to measurements."""

    origin: Origin  # what it is of
    fit_s: float  # seconds that fitting took
    coverage: float  # share of the labeled nodes that it covered itself; NaN: it predicts whole steps only
    steps: pd.DataFrame  # STEP_COLUMNS, one row per recording, float64 us
    # NODE_COLUMNS, labeled nodes only: `recording` is a row of `steps`, float32 us; None: no node predictions
    nodes: pd.DataFrame | None

    def __post_init__(self) -> None:
        """Refuse predictions that no error can be given of."""
        where = f"cell {self.origin.split}/{self.origin.row}"
        _check_times(self.steps, STEP_COLUMNS, where)
        if self.nodes is not None:
            _check_times(self.nodes, NODE_COLUMNS, where)


def _check_times(table: pd.DataFrame, columns: tuple[str, ...], where: str) -> None:
    missing = [name for name in columns if name not in table]
    if missing:
        raise InputError(f"has no column {missing[0]!r}", where=where)
    if not len(table):
        raise InputError("has no rows", where=where)
    predicted, measured = (table[name].to_numpy(np.float64) for name in ("predicted_us", "measured_us"))
    if not (np.isfinite(predicted).all() and (predicted >= 0).all()):
        raise InputError("a predicted latency is not finite", where=where, allowed="0 us or more")
    if not (np.isfinite(measured).all() and (measured > 0).all()):
        raise InputError("a measured latency is not positive", where=where)


# Cells on disk: <folder>/<split>/<row>/<seed>.parquet, `fixed.parquet` for a row without chance.
#
# A file is whole or not there: it is written next to its place, then renamed.

KEY = b"gnnperf.cell"
FORMAT = 2
FIXED = "fixed"
MAKE = "python -m research.benchmarks.learned"


def record_path(folder: Path, split: str, row: str, seed: int | None) -> Path:
    return folder / split / row / f"{FIXED if seed is None else seed}.parquet"


def write_record(record: EvaluationRecord, folder: Path) -> Path:
    """Write it next to its place, then rename, so that a killed run leaves no half of it."""
    origin = record.origin
    path = record_path(folder, origin.split, origin.row, origin.seed)
    none = {"recording": np.zeros(0, np.int32), "kind": pd.Categorical([]),
            "predicted_us": np.zeros(0, np.float32), "measured_us": np.zeros(0, np.float32)}  # fmt: skip
    nodes = pd.DataFrame(none) if record.nodes is None else record.nodes
    table = pa.Table.from_pandas(nodes, preserve_index=False)
    about = {
        "format": FORMAT, **vars(origin), "fit_s": record.fit_s, "has_nodes": record.nodes is not None,
        "coverage": None if np.isnan(record.coverage) else record.coverage, "steps": record.steps.to_dict("list"),
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    written = json.dumps(about, allow_nan=False).encode()
    held = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({KEY: written}), held, compression="zstd")
    write_bytes(path, held.getvalue().to_pybytes())
    return path


def read_record(path: Path) -> EvaluationRecord:
    try:
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {})[KEY])
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']}")
        origin = Origin(**{f.name: about[f.name] for f in fields(Origin)})
        coverage = float("nan") if about["coverage"] is None else float(about["coverage"])
        nodes = table.to_pandas() if about["has_nodes"] else None
        steps = pd.DataFrame(about["steps"], columns=list(STEP_COLUMNS))
        return EvaluationRecord(origin, float(about["fit_s"]), coverage, steps, nodes)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException, InputError) as error:
        raise InputError(f"is no cell that can be read ({error})", where=str(path),
                         remedy=f"delete it; {MAKE} makes it again") from error  # fmt: skip


def read_records(folder: Path, part: str = "test") -> tuple[EvaluationRecord, ...]:
    """All cells below a folder, by split, row and seed."""
    if not folder.is_dir():
        raise InputError("is no folder", where=str(folder), remedy=f"{MAKE} --out DIR makes cells")
    records = tuple(read_record(path) for path in sorted(folder.glob("*/*/*.parquet")))
    if not records:
        raise InputError("holds no cells", where=str(folder), allowed="<split>/<row>/<seed>.parquet")
    other = sorted({c.origin.part for c in records} - {part})
    if other:
        raise InputError(f"holds cells of the part {other[0]!r}", where=str(folder), allowed=f"cells of {part!r}",
                         remedy="keep each part in a folder of its own")  # fmt: skip
    return records


def codes(records: Iterable[EvaluationRecord]) -> tuple[str, ...]:
    """Hashes of the learning code that made these cells; more than one: not all are of one version."""
    return tuple(sorted({record.origin.code for record in records}))


def same_question(records: Iterable[EvaluationRecord]) -> None:
    """Refuse cells of one split that were judged on different measurements, or fitted on different whole data."""
    first: dict[str, EvaluationRecord] = {}
    data: dict[str, str] = {}  # split -> fingerprint
    for record in records:
        origin, place = record.origin, f"cells of {record.origin.split}, row {record.origin.row}"
        other, labels = first.setdefault(origin.split, record), ["recording", "measured_us"]
        same = record.steps[labels].equals(other.steps[labels])
        if record.nodes is not None and other.nodes is not None:
            mine, theirs = record.nodes["measured_us"].to_numpy(), other.nodes["measured_us"].to_numpy()
            same = same and np.array_equal(mine, theirs)
        if not same:
            raise InputError("judged on other measurements than the split's other rows", where=place,
                             remedy=f"{MAKE} makes such cells again")  # fmt: skip
        if data.setdefault(origin.split, origin.data) != origin.data:
            raise InputError("fitted on other data than the split's other rows", where=place,
                             remedy=f"{MAKE} makes such cells again")  # fmt: skip
