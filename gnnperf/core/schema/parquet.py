"""Parquet files that others wrote, read only if their contents are as small as the file promises.

A page may say "the same value again" a million times, so a file of a kilobyte can hold gigabytes. Numbers have a known
width and a count in the footer. Texts are decoded as a dictionary and indices first, and their total length is checked.
"""

import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gnnperf.core import untrusted
from gnnperf.core.errors import InputError

# Sizes that the pages of a Parquet file state themselves, in Thrift's compact protocol.
#
# The footer states totals, but pages are decoded by their own headers: if the totals are too small, a file is unpacked
# without a limit. pyarrow gives no access to page headers, and ends the process on a damaged footer of a column.
#
#     footer   FileMetaData {4: row groups {1: columns {3: ColumnMetaData}}}
#     column   3: path, 7: compressed bytes of all its pages, 9: first data page, 11: dictionary page (before it)
#     page     2: unpacked bytes, 3: packed bytes behind the header
#
# Ids of fields: parquet-format 2.10, src/main/thrift/parquet.thrift.

MAX_DEPTH = 16
MAX_PAGES = 1_000_000
PAGE_HEADER_BYTES = 2**16  # read at once; statistics of long texts are cut by writers
TRUE, FALSE, STRUCT = 1, 2, 12  # kinds of values; `_value` has the others


def unpacked_bytes(file: pa.NativeFile, columns: Collection[str], footer_bytes: int, path: Path) -> int:
    """Bytes of all pages of the columns (dotted paths), unpacked, as the headers of the pages state them."""
    total = 0
    file.seek(-8 - footer_bytes, 2)
    footer = _Compact(file.read(footer_bytes)).struct()
    for chunk in (chunk[3] for group in footer.get(4, []) for chunk in group[1]):
        if b".".join(chunk[3]).decode() in columns:
            first = min(at for at in (chunk[9], chunk.get(11) or chunk[9]) if at >= 0)
            total += _chunk_bytes(file, first, chunk[7], path)
    return total


def _chunk_bytes(file: pa.NativeFile, at: int, packed_bytes: int, path: Path) -> int:
    """Of the pages of one column in one row group."""
    end, total = at + packed_bytes, 0
    for _ in range(MAX_PAGES):
        if at >= end:
            return total
        file.seek(at)
        reader = _Compact(file.read(PAGE_HEADER_BYTES))
        header = reader.struct()
        if min(header[2], header[3]) < 0:
            raise ValueError("a page of negative size")
        total += header[2]
        at += reader.at + header[3]
    raise InputError(f"holds more than {MAX_PAGES:,} pages", where=str(path))


class _Compact:
    """Reads Thrift's compact protocol: field id -> value."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deep")
        result: dict[int, Any] = {}
        field = 0
        while kind := self._byte():
            delta, kind = kind >> 4, kind & 15
            field = field + delta if delta else self._signed()
            result[field] = kind == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth)
        return result

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2 | 3:  # a flag or a byte, within a list
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return struct.unpack("<d", self._take(8))[0]
            case 8:
                return self._take(self._unsigned())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 < 15 else self._unsigned()
                if count > len(self.data):
                    raise ValueError("a list longer than the file")
                return [
                    self.struct(depth + 1) if head & 15 == STRUCT else self._value(head & 15, depth + 1)
                    for _ in range(count)
                ]
            case 12:
                return self.struct(depth + 1)
            case _:
                raise ValueError(f"a value of kind {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _take(self, count: int) -> bytes:
        piece = self.data[self.at : self.at + count]
        if len(piece) != count:
            raise ValueError("cut off")
        self.at += count
        return piece

    def _unsigned(self) -> int:
        result = shift = 0
        while True:
            byte = self._byte()
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)


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
    if path.exists() and not path.is_file():
        raise InputError("is not a file", where=str(path))
    with pa.OSFile(str(path)) as file:  # opened once: another process may replace the file meanwhile
        return _read(file, path, columns, row_bytes)


def _read(file: pa.NativeFile, path: Path, columns: Collection[str] | None, row_bytes: int) -> pa.Table:
    metadata, footer_bytes = _footer(file, path)
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    wanted = [i for i, leaf in enumerate(leaves) if columns is None or leaf.path in columns]
    texts = [leaves[i].path for i in wanted if leaves[i].physical_type == TEXT]
    if any(leaves[i].max_repetition_level for i in wanted):
        raise InputError("holds lists", where=str(path), allowed="columns of numbers and texts")
    unpacked = unpacked_bytes(file, {leaves[i].path for i in wanted}, footer_bytes, path)
    # From totals only: pyarrow ends the process where the footer of a single column is damaged.
    widths = sum(leaves[i].length or WIDTH for i in wanted)
    stated = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    decoded = max(stated, num_rows(metadata) * widths) + num_rows(metadata) * row_bytes
    _refuse_large(need := max(unpacked, decoded), file.size(), path)
    parquet = pq.ParquetFile(file, metadata=metadata, read_dictionary=texts, page_checksum_verification=True)
    stored = parquet.read([leaves[i].path for i in wanted])
    if (text_bytes := sum(_text_bytes(stored[name]) for name in texts)) > need:  # to find out what is free takes long
        _refuse_large(text_bytes, file.size(), path)
    schema = pq.ParquetFile(file, metadata=metadata).schema_arrow
    for i, name in enumerate(stored.column_names):  # texts are texts again, unless the file calls them categories
        kind = schema.field(name).type
        if stored[name].type != kind:
            stored = stored.set_column(i, pa.field(name, kind), stored[name].cast(kind))
    return stored


def num_rows(metadata: pq.FileMetaData) -> int:
    """Rows that reading gives: the footer's own total may be another."""
    return max(metadata.num_rows, sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)))


def _footer(file: pa.NativeFile, path: Path) -> tuple[pq.FileMetaData, int]:
    """The footer, unless it is huge, and its length."""
    file.seek(-min(8, file.size()), 2)
    end = file.read()
    size = int.from_bytes(end[:4], "little")
    if end[4:] == MAGIC and size > MAX_FOOTER_BYTES:
        raise InputError(f"has a footer of {size:,} bytes", where=str(path), allowed=f"{MAX_FOOTER_BYTES:,}")
    return pq.read_metadata(file), size


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Length of all texts together once they are no indices any more."""
    total = 0
    for chunk in column.chunks:
        lengths = np.asarray(pc.fill_null(pc.binary_length(chunk.dictionary), 0), dtype=np.int64)
        rows = np.asarray(chunk.indices.drop_null())
        total += int(np.bincount(rows, minlength=len(lengths)) @ lengths) if len(lengths) else 0
    return total


def _refuse_large(need: int, size: int, path: Path) -> None:
    if untrusted.is_bomb(need, size):
        raise InputError(f"holds {need:,} bytes in {size:,}", where=str(path), allowed=f"{untrusted.MAX_RATIO:g} to 1")
    untrusted.require_memory(COPIES * need, size, str(path))
