"""TraceTables on disk: one Parquet file per rank with its metadata inside, feeds beside it, the run's card."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf import schema
from gnnperf.errors import InputError
from gnnperf.trace.columns import categorical
from gnnperf.trace.table import RANK_FILE, DeviceInfo, RunTrace, TraceMeta, TraceTable

META_KEY = b"gnnperf.trace"
FORMAT_VERSION = 1
OWN_FILE = re.compile(r"rank_\d+(?:\.feeds)?\.parquet|run\.json")
CARD = "run.json"
MAX_CARD_BYTES = 2**20
FEEDS_SCHEMA = pa.schema([("producer_event", pa.int64()), ("consumer_event", pa.int64())])


def write_run(run: RunTrace, directory: Path) -> None:
    """Write `rank_N.parquet` (and `rank_N.feeds.parquet`, `run.json`) for every rank, beside, then rename.

    Raises:
        InputError: the directory holds other things, or cannot be written.
    """
    directory = Path(directory)
    _refuse_foreign(directory)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    except OSError as error:
        raise _unwritable(directory, error) from None
    try:
        for table in run.tables:
            _write_table(table, beside)
        if run.card is not None:
            (beside / CARD).write_text(json.dumps(run.card, indent=1))
        beside.chmod(0o755)
        _replace(beside, directory)
    except OSError as error:
        raise _unwritable(directory, error) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _refuse_foreign(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise InputError("is a file", where=str(directory), allowed="a directory to write to")
    foreign = [p.name for p in directory.iterdir() if not OWN_FILE.fullmatch(p.name)] if directory.is_dir() else []
    if foreign:
        raise InputError(f"holds other files ({foreign[0]!r})", where=str(directory),
                         remedy="choose a new or empty directory")  # fmt: skip


def _replace(beside: Path, directory: Path) -> None:
    """Rename `beside` to `directory`; an earlier result moves out of the way first and is deleted last."""
    earlier = Path(tempfile.mkdtemp(prefix=f".{directory.name}.old.", dir=directory.parent))
    try:
        if directory.exists():
            directory.rename(earlier / "earlier")
        try:
            beside.rename(directory)
        except OSError:
            if (earlier / "earlier").exists():
                (earlier / "earlier").rename(directory)
            raise
    finally:
        shutil.rmtree(earlier, ignore_errors=True)


def _unwritable(directory: Path, error: OSError) -> InputError:
    return InputError(f"cannot be written ({error.strerror or error})", where=str(directory),
                      remedy="choose a directory you may write to, with space left")  # fmt: skip


def _write_table(table: TraceTable, directory: Path) -> None:
    meta = json.dumps({"version": FORMAT_VERSION, **asdict(table.meta)})
    arrow = pa.Table.from_pandas(table.events, schema=_arrow_schema(), preserve_index=False)
    arrow = arrow.replace_schema_metadata({META_KEY: meta.encode()})
    categories = [c.name for c in schema.EVENT_COLUMNS if c.dtype == "category"]
    integers = {c.name: "DELTA_BINARY_PACKED" for c in schema.EVENT_COLUMNS if c.dtype.startswith("int")}
    pq.write_table(arrow, directory / f"rank_{table.meta.rank}.parquet", compression="zstd", compression_level=12,
                   use_dictionary=categories, column_encoding=integers)  # fmt: skip
    if len(table.feeds):
        feeds = pa.Table.from_pandas(table.feeds, schema=FEEDS_SCHEMA, preserve_index=False)
        pq.write_table(feeds, directory / f"rank_{table.meta.rank}.feeds.parquet", compression="zstd")


def _arrow_schema() -> pa.Schema:
    kinds = {"int64": pa.int64(), "int32": pa.int32(), "float64": pa.float64()}
    text = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(c.name, kinds.get(c.dtype, text)) for c in schema.EVENT_COLUMNS])


def read_tables(path: Path) -> list[TraceTable]:
    """Saved tables of a directory by rank, or one of them.

    Raises:
        InputError: not written by this program, cut off, damaged, or of another version.
    """
    if not path.is_dir():
        return [_read_table(path)]
    matches = [match for match in map(RANK_FILE.fullmatch, (p.name for p in path.iterdir())) if match]
    return [_read_table(path / match.string) for match in sorted(matches, key=lambda match: int(match[1]))]


def _read_table(path: Path) -> TraceTable:
    try:
        arrow = pq.read_table(path, memory_map=False)
        raw = (arrow.schema.metadata or {}).get(META_KEY)
        if raw is None:
            raise InputError("is a Parquet file without this program's metadata", where=str(path))
        meta = _meta(raw, path)
        events = _text_categories(arrow.cast(_arrow_schema()).to_pandas())
        beside = path.with_suffix(".feeds.parquet")
        feeds = pq.read_table(beside).cast(FEEDS_SCHEMA).to_pandas() if beside.exists() else None
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"is not a readable table ({str(error).splitlines()[0][:120]})", where=str(path),
                         remedy="import the trace again") from None  # fmt: skip
    schema.validate(events, schema.EVENT_COLUMNS, str(path))
    _refuse_dangling(events, ("op_event", "launch_event", "forward_event"), -1, len(events), path)
    if feeds is None:
        return TraceTable(meta, events)
    _refuse_dangling(feeds, FEEDS_SCHEMA.names, 0, len(events), beside)
    return TraceTable(meta, events, feeds)


def _refuse_dangling(frame: pd.DataFrame, columns: Sequence[str], lowest: int, num_events: int, path: Path) -> None:
    """Later rooms follow these row numbers without looking."""
    for name in columns:
        if not frame[name].between(lowest, num_events - 1).all():
            raise InputError(f"column {name!r} names a row that is not there", where=str(path),
                             remedy="import the trace again")  # fmt: skip


def _text_categories(events: pd.DataFrame) -> pd.DataFrame:
    """Arrow gives an empty dictionary no type; every category column has text categories here."""
    for column in schema.EVENT_COLUMNS:
        if column.dtype == "category" and not len(events[column.name].cat.categories):
            events[column.name] = categorical(events[column.name].cat.codes.to_numpy(), [])
    return events


def _meta(raw: bytes, path: Path) -> TraceMeta:
    found = msgspec.json.decode(raw, type=dict[str, Any])
    if found.pop("version", None) != FORMAT_VERSION:
        raise InputError("was written by another version", where=str(path), remedy="import the trace again")
    known = {f.name for f in fields(TraceMeta)}
    values = {key: value for key, value in found.items() if key in known}
    try:
        values["devices"] = tuple(DeviceInfo(**device) for device in values.get("devices", ()))
        values["warnings"] = tuple(values.get("warnings", ()))
        return TraceMeta(**values)
    except TypeError:
        raise InputError("was written by another version", where=str(path), remedy="import the trace again") from None


def read_card(directory: Path) -> dict[str, object] | None:
    """The recorder's `run.json` beside the traces; None without one.

    Raises:
        InputError: it is there and is not a JSON object.
    """
    path = directory / CARD
    if not path.is_file():
        return None
    if path.stat().st_size > MAX_CARD_BYTES:
        raise InputError("is larger than a run's card", where=str(path), allowed=f"{MAX_CARD_BYTES:,} bytes")
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except msgspec.DecodeError as error:
        raise InputError(f"is not a JSON object ({error})", where=str(path)) from None
