"""Whether bytes on disk are the ones the catalog promises."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Protocol

from gnnperf.core import InputError
from gnnperf.trace.public.catalog import Entry

CHUNK_BYTES = 1 << 20
MAX_PLAIN_BYTES = 1 << 30  # no public file is larger when unpacked; more is a decompression bomb


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of the bytes of a file."""
    with path.open("rb") as file:
        return _digest(file, str(path))


def is_promised(entry: Entry, path: Path) -> bool:
    """Whether `path` holds the file of this entry: mirrored bytes, upstream bytes, or upstream's re-compressed."""
    if sha256_of(path) in (entry.mirror_sha256, entry.sha256):
        return True
    return entry.recompressed and _sha256_unpacked(path) == entry.sha256


def _sha256_unpacked(path: Path) -> str | None:
    """SHA-256 of what a gzip file holds; None if it is not one."""
    try:
        with gzip.open(path, "rb") as file:
            return _digest(file, str(path))
    except (OSError, EOFError, zlib.error):
        return None


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _digest(file: _Readable, where: str) -> str:
    digest, total_bytes = hashlib.sha256(), 0
    while chunk := file.read(CHUNK_BYTES):
        total_bytes += len(chunk)
        if total_bytes > MAX_PLAIN_BYTES:
            raise InputError(f"more than {MAX_PLAIN_BYTES:,} bytes", where=where)
        digest.update(chunk)
    return digest.hexdigest()
