"""Parquet files that others wrote, read only if their contents are as small as the file promises.

A page may say "the same value again" a million times, so a file of a kilobyte can hold gigabytes. Numbers have a known
width and a count in the footer. Texts are decoded as a dictionary and indices first, and their total length is checked.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gnnperf.core import untrusted
from gnnperf.core.errors import InputError
from gnnperf.core.schema.parquet_pages import unpacked_bytes

MAX_FOOTER_BYTES = 16 * 2**20
MAGIC = b"PAR1"
COPIES = 2  # of the contents in memory while they are decoded
TEXT, WIDTH = "BYTE_ARRAY", 8


def read_parquet(path: Path, columns: Collection[str] | None = None, *, row_bytes: int = 0) -> pa.Table:
    """A table with the file's metadata. Call it inside `untrusted.reading`: other errors are not converted.

    Args:
        path: the file.
        columns: read only these, as far as there are; None: all.
        row_bytes: memory per row that the caller will need.

    Raises:
        InputError: larger when decoded than such a file may be.
    """
    metadata, footer_bytes = _footer(path)
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    wanted = [i for i, leaf in enumerate(leaves) if columns is None or leaf.path in columns]
    texts = [leaves[i].path for i in wanted if leaves[i].physical_type == TEXT]
    if any(leaves[i].max_repetition_level for i in wanted):
        raise InputError("holds lists", where=str(path), allowed="columns of numbers and texts")
    unpacked = unpacked_bytes(path, {leaves[i].path for i in wanted}, footer_bytes)
    _refuse_large(max(unpacked, _decoded_bytes(metadata, wanted, row_bytes)), path)
    with pq.ParquetFile(path, metadata=metadata, memory_map=False, read_dictionary=texts,
                        page_checksum_verification=True) as file:  # fmt: skip
        stored = file.read([leaves[i].path for i in wanted])
    _refuse_large(sum(_text_bytes(stored[name]) for name in texts), path)
    return _plain(stored, pq.ParquetFile(path, metadata=metadata).schema_arrow)


def num_rows(metadata: pq.FileMetaData) -> int:
    """Rows that reading gives: the footer's own total may be another."""
    return max(metadata.num_rows, sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)))


def _footer(path: Path) -> tuple[pq.FileMetaData, int]:
    """The footer, unless it is huge, and its length."""
    if path.exists() and not path.is_file():
        raise InputError("is not a file", where=str(path))
    with path.open("rb") as file:
        file.seek(-min(8, path.stat().st_size), 2)
        end = file.read()
    size = int.from_bytes(end[:4], "little")
    if end[4:] == MAGIC and size > MAX_FOOTER_BYTES:
        raise InputError(f"has a footer of {size:,} bytes", where=str(path), allowed=f"{MAX_FOOTER_BYTES:,}")
    return pq.read_metadata(path), size


def _decoded_bytes(metadata: pq.FileMetaData, wanted: Collection[int], row_bytes: int) -> int:
    """From totals only: pyarrow ends the process where the footer of a single column is damaged."""
    widths = [metadata.schema.column(i).length or WIDTH for i in wanted]
    stated = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return max(stated, num_rows(metadata) * sum(widths)) + num_rows(metadata) * row_bytes


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Length of all texts together once they are no indices any more."""
    total = 0
    for chunk in column.chunks:
        lengths = np.asarray(pc.fill_null(pc.binary_length(chunk.dictionary), 0), dtype=np.int64)
        rows = np.asarray(chunk.indices.drop_null())
        total += int(np.bincount(rows, minlength=len(lengths)) @ lengths) if len(lengths) else 0
    return total


def _refuse_large(need: int, path: Path) -> None:
    size = path.stat().st_size
    if untrusted.is_bomb(need, size):
        raise InputError(f"holds {need:,} bytes in {size:,}", where=str(path), allowed=f"{untrusted.MAX_RATIO:g} to 1")
    untrusted.require_memory(COPIES * need, size, str(path))


def _plain(stored: pa.Table, schema: pa.Schema) -> pa.Table:
    """Texts as texts again, unless the file itself calls them categories."""
    for i, name in enumerate(stored.column_names):
        kind = schema.field(name).type
        if stored[name].type != kind:
            stored = stored.set_column(i, pa.field(name, kind), stored[name].cast(kind))
    return stored
