"""TraceTables on disk: `events.parquet` with all ranks of a run, `feeds.parquet` and the run's card next to it.

events.parquet holds the packed columns of `gnnperf.trace.packing`, rank after rank, and in its schema metadata
(`gnnperf.trace`) the format's version, each rank's TraceMeta with its number of events, and the columns that have one
value throughout, which are not stored as columns. Texts are in columns of their own (`name_texts`): row i holds the
text whose number is i, the rows after the last text are null. Encodings and compressor were chosen by size and decoding
time: two ranks of 3,000 events take about 24 KB, and 15 ms.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf.core import EVIDENCE_COLUMNS, InputError, files, read_parquet, replacing_folder, schema, untrusted
from gnnperf.trace.columns import Codes
from gnnperf.trace.limits import MAX_RUN_EVENTS
from gnnperf.trace.metadata import MAX_RANKS
from gnnperf.trace.packing import TEXTS, narrow, pack, packed_dtypes, unpack
from gnnperf.trace.table import CARD, EVENTS_FILE, RunTrace, TraceMeta, TraceTable
from gnnperf.trace.table import IMPORTED as IMPORTED
from gnnperf.trace.trace_sources import is_regular

META_KEY = b"gnnperf.trace"
FORMAT_VERSION = 2
FEEDS_FILE = "feeds.parquet"
FILES = (EVENTS_FILE, FEEDS_FILE, CARD)
ALWAYS_STORED = "start_gap_ns"  # so that the file knows its number of rows
REMEDY = "import the trace again"
FEEDS_SCHEMA = pa.schema([("rank", pa.int64()), ("producer_event", pa.int64()), ("consumer_event", pa.int64())])
BROTLI_LEVEL, ZSTD_LEVEL = 11, 3  # the former takes seconds for 100,000 events


def write_run(run: RunTrace, directory: Path, *, smallest: bool = False) -> None:
    """Write `events.parquet` (and `feeds.parquet`, `run.json`): all of them, or nothing is changed.

    The directory is new, empty, or has earlier tables. `smallest`: brotli, for files that are committed or shipped;
    else zstd, which is written faster.

    Raises InputError: the directory holds other things, or cannot be written.
    """
    directory = Path(directory)
    files.refuse_foreign(directory, FILES)
    with replacing_folder(directory) as temporary:
        write_files(run, temporary, smallest=smallest)


def write_files(run: RunTrace, folder: Path, *, smallest: bool = False) -> None:
    """Write the files of a run into an empty folder."""
    _write_events(run.tables, folder / EVENTS_FILE, smallest=smallest)
    feeds = [t.feeds.assign(rank=t.meta.rank) for t in run.tables if len(t.feeds)]
    if feeds:
        arrow = pa.Table.from_pandas(pd.concat(feeds), schema=FEEDS_SCHEMA, preserve_index=False)
        pq.write_table(arrow, folder / FEEDS_FILE, column_encoding="DELTA_BINARY_PACKED", use_dictionary=False,
                       write_statistics=False, store_schema=False, **_codec(smallest))  # fmt: skip
    if run.card is not None:
        (folder / CARD).write_text(files.readable(run.card))


def _write_events(tables: Sequence[TraceTable], path: Path, *, smallest: bool) -> None:
    texts = {name: Codes() for name in TEXTS}
    ranks = [pack(table.events, texts) for table in tables]
    columns = {name: narrow(np.concatenate([rank.pop(name) for rank in ranks])) for name in packed_dtypes()}
    num_events = sum(len(table.events) for table in tables)
    # One integer throughout; or NaN throughout, other floats are stored.
    constants = {
        name: values[0].item()
        for name, values in columns.items()
        if num_events and (np.isnan(values).all() if values.dtype.kind == "f" else (values == values[0]).all())
    }
    constants.pop(ALWAYS_STORED, None)
    stored = {name: pa.array(values) for name, values in columns.items() if name not in constants}
    for name, codes in texts.items():
        if values := codes.uniques():
            nulls = pa.nulls(num_events - len(values), pa.string())
            stored[f"{name}_texts"] = pa.concat_arrays([pa.array(values, pa.string()), nulls])
    about = [{"num_events": len(t.events), **asdict(t.meta)} for t in tables]
    meta = msgspec.json.encode({"version": FORMAT_VERSION, "ranks": about, "constants": constants})  # NaN is null
    table = pa.table(stored)
    numbers = [column.name for column in table.schema if column.type != pa.string()]
    with pq.ParquetWriter(
        path, table.schema, use_dictionary=False,
        use_byte_stream_split=numbers, write_statistics=False, store_schema=False,
        write_page_checksum=True, **_codec(smallest),
    ) as file:  # fmt: skip
        file.write_table(table)
        file.add_key_value_metadata({META_KEY: meta})


def _codec(smallest: bool) -> dict[str, Any]:
    name, level = ("brotli", BROTLI_LEVEL) if smallest else ("zstd", ZSTD_LEVEL)
    return {"compression": name, "compression_level": level}


def read_tables(path: Path, has_rank: Callable[[int], bool] = lambda rank: True) -> list[TraceTable]:
    """The saved tables of a directory, or of its `events.parquet`, by rank; those of some ranks.

    Raises InputError: not written by this program, cut off, damaged, or of another version.
    """
    folder = path if path.is_dir() else path.parent
    path = path / EVENTS_FILE if path.is_dir() else path
    feeds = path.with_name(FEEDS_FILE)
    with untrusted.reading(path, "is not a readable table", remedy=REMEDY):
        if path.name == EVENTS_FILE and not is_regular(path, folder):
            raise InputError("is not a regular file of its folder", where=str(path), remedy="copy the file there")
        tables = _read_events(path, has_rank)
        if not is_regular(feeds, folder):
            return tables
        rows = read_parquet(feeds, FEEDS_SCHEMA.names).select(FEEDS_SCHEMA.names).cast(FEEDS_SCHEMA).to_pandas()
        return [replace(table, feeds=_feeds_of(rows, table, feeds)) for table in tables]


def _read_events(path: Path, has_rank: Callable[[int], bool]) -> list[TraceTable]:
    dtypes = packed_dtypes()
    row_bytes = sum(np.dtype(dtype).itemsize for dtype in dtypes.values())
    stored = read_parquet(path, {*dtypes, *(f"{name}_texts" for name in TEXTS)}, row_bytes=row_bytes)
    about = _about(stored, path)
    columns = {name: _column(stored, about, name, dtype) for name, dtype in dtypes.items()}
    named = {name: f"{name}_texts" for name in TEXTS}
    texts = {name: stored[column].cast(pa.string()).drop_null().to_pylist() if column in stored.column_names else []
             for name, column in named.items()}  # fmt: skip
    sizes = msgspec.convert([rank.get("num_events") for rank in about.ranks], list[int])
    if min(sizes, default=0) < 0 or sum(sizes) != len(stored):
        what = f"is damaged (ranks of {sum(sizes)} events in {len(stored)} rows)"
        raise InputError(what, where=str(path), remedy=REMEDY)
    tables = []
    for rank, (first, end) in zip(about.ranks, pairwise(accumulate(sizes, initial=0)), strict=True):
        meta = _meta(rank, path)
        if has_rank(meta.rank):
            events = unpack({name: values[first:end] for name, values in columns.items()}, texts, str(path))
            schema.validate(events, schema.EVENT_COLUMNS, str(path))
            tables.append(TraceTable(meta, events))
    return sorted(tables, key=lambda table: table.meta.rank)


class _About(msgspec.Struct):
    """What the schema metadata of `events.parquet` states; each rank's TraceMeta is decoded later."""

    ranks: list[dict[str, Any]]
    constants: dict[str, int | float | None]


def _about(stored: pa.Table, path: Path) -> _About:
    raw = (stored.schema.metadata or {}).get(META_KEY)
    if raw is None:
        raise InputError("is a Parquet file without this program's metadata", where=str(path))
    result = msgspec.json.decode(raw, type=dict[str, Any])
    if result.get("version") != FORMAT_VERSION:
        raise InputError("was written by another version", where=str(path), remedy=REMEDY)
    if len(stored) > MAX_RUN_EVENTS:
        raise InputError(f"holds {len(stored):,} events", where=str(path), allowed=f"{MAX_RUN_EVENTS:,}")
    return msgspec.convert(result, _About)


def _meta(result: dict[str, Any], path: Path) -> TraceMeta:
    try:
        meta = msgspec.convert(result, TraceMeta)
    except msgspec.ValidationError as error:
        raise InputError(f"was written by another version ({error})", where=str(path), remedy=REMEDY) from None
    good = 0 <= meta.rank < MAX_RANKS and 0 <= (meta.world_size or 0) <= MAX_RANKS and abs(meta.base_time_ns) < 2**63
    if not good:
        raise InputError("is damaged (a rank, world size or time that no run has)", where=str(path), remedy=REMEDY)
    return meta


def _column(stored: pa.Table, about: _About, name: str, dtype: str) -> np.ndarray:
    """[num_events over all ranks] a packed column, stored or constant."""
    if name not in stored.column_names:
        value = about.constants.get(name, -1) if name in EVIDENCE_COLUMNS else about.constants[name]  # of earlier files
        return np.full(len(stored), np.nan if value is None else value, dtype=dtype)
    if stored[name].null_count:
        raise ValueError(f"column {name!r} has nulls")
    return stored[name].cast(pa.from_numpy_dtype(dtype)).to_numpy()


def _feeds_of(feeds: pd.DataFrame, table: TraceTable, path: Path) -> pd.DataFrame:
    own = feeds.loc[feeds["rank"] == table.meta.rank, ["producer_event", "consumer_event"]].reset_index(drop=True)
    for name in own:  # later packages follow these row numbers without looking
        if not own[name].between(0, len(table.events) - 1).all():
            raise InputError(f"column {name!r} names a row that is not there", where=str(path), remedy=REMEDY)
    return own
