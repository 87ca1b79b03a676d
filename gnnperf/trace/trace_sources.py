"""Files, directories and archives -> where each trace file is, and its text; limits on what strangers send.

Archives are read in memory and never extracted.
"""

import hashlib
import io
import mmap
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from isal import igzip, igzip_lib, isal_zlib

from gnnperf.core import InputError, files, untrusted
from gnnperf.trace import limits

JSON_ENDINGS = (".json", ".json.gz", ".et", ".et.gz")
TRACE_ENDINGS = (*JSON_ENDINGS, ".sqlite", ".db")
PREDICTED = ("prediction.json", "timeline.json.gz")  # of an earlier prediction; its timeline looks like a trace
REPORT_ENDINGS = (".nsys-rep", ".qdrep")
ARCHIVE_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz")
ISAL_ERROR: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # its stub is not a type
GZIP_MAGIC, SQLITE_MAGIC = b"\x1f\x8b", b"SQLite format 3\0"
PEEK_BYTES = 2**15  # holds the head of a file that names eight devices
LARGE_BYTES = 64 * 2**20  # of a file that is mapped into memory instead of read
Text = bytes | mmap.mmap
COPIES = 2  # of a file in memory while it is unpacked or decoded, if it is not mapped
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others unpack without a limit
FORMS = (
    "a Kineto file (.json, .json.gz), an SQLite export of Nsight Systems, a database of rocprofv3, "
    "a directory of rank files, a .zip, .tar.gz or .tgz archive, saved tables"
)


@dataclass(frozen=True)
class Source:
    """One file as found; what lies on the disk is read when it is requested."""

    path: str  # as the user may recognize it: the path given, and the member of it
    folder: str  # where in the given path it lies, "" at its top
    content: bytes | Path  # of an archive's member, still packed; else the file
    database: Path | None = None  # the file, if it is of SQLite, which is read in place

    @property
    def name(self) -> str:
        """Base name."""
        return PurePosixPath(self.path).name

    def _open(self) -> IO[bytes]:
        return self.content.open("rb") if isinstance(self.content, Path) else io.BytesIO(self.content)

    def sha256(self) -> str:
        """Digest of the whole file."""
        if isinstance(self.content, Path):
            return files.sha256(self.content)
        return hashlib.sha256(self.content).hexdigest()

    def unpack(self) -> Text:
        """The JSON text, of a large file in place; refuses what is cut off, or larger than a trace may be."""
        with self._open() as file:
            data: Any = b""
            if isinstance(self.content, Path) and os.fstat(file.fileno()).st_size > LARGE_BYTES:
                with suppress(OSError):  # some file systems map nothing
                    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            data = data or file.read()
        return data if data[:2] != GZIP_MAGIC else _gunzip(bytes(data), self.path)

    def peek(self) -> bytes:
        """The first few kilobytes of the JSON text; empty if unreadable."""
        if self.database is not None:
            return SQLITE_MAGIC
        with self._open() as file:
            start = file.read(4 * PEEK_BYTES)
        if start[:2] != GZIP_MAGIC:
            return start[:PEEK_BYTES]
        try:
            return isal_zlib.decompressobj(wbits=31).decompress(start, PEEK_BYTES)
        except (ISAL_ERROR, zlib.error):
            return b""


def sources(path: Path) -> Iterator[Source]:
    """All trace files under a path, in order of their names; refuses an empty path, and archives that break a limit."""
    with untrusted.reading(path):
        if path.is_dir():
            result = [p for p in _named_as_traces(path) if is_regular(p, path)]
            if len(result) > limits.MAX_ARCHIVE_MEMBERS:
                raise InputError(f"holds {len(result)} files", where=str(path), allowed=str(limits.MAX_ARCHIVE_MEMBERS))
            for file in result:
                folder = str(file.relative_to(path).parent)
                yield _source(file, "" if folder == "." else folder)
        elif not path.exists():
            raise InputError("does not exist", where=str(path), allowed=FORMS)
        elif is_archive(path):
            yield from _archive(path)
        else:
            yield _source(path, "")


def is_archive(path: Path) -> bool:
    """Whether the name is that of an archive, whose members are in memory while they are read."""
    return path.name.lower().endswith(ARCHIVE_ENDINGS)


def skipped(path: Path) -> list[InputError]:
    """What `sources` leaves out of a folder although it has the name of a trace."""
    with untrusted.reading(path):
        result = [p for p in _named_as_traces(path) if not is_regular(p, path)] if path.is_dir() else []
    what = "is not a regular file inside the folder (a link that leaves it, a pipe, a device)"
    return [InputError(what, where=str(p), remedy="copy the file into the folder") for p in result]


def is_regular(file: Path, folder: Path) -> bool:
    """Whether it is a file that lies in the folder, directly or through links."""
    return file.is_file() and (not file.is_symlink() or file.resolve().is_relative_to(folder.resolve()))


def _source(path: Path, folder: str) -> Source:
    """A regular file that is not too large; a device or a pipe may have no end."""
    if not path.is_file():
        raise InputError("is not a file", where=str(path), allowed=FORMS)
    if path.name.lower().endswith(REPORT_ENDINGS):
        raise InputError("is a report of Nsight Systems, whose format is not public", where=str(path), allowed=FORMS,
                         remedy=f"nsys export --type sqlite {path.name}")  # fmt: skip
    size = path.stat().st_size
    _refuse_size(size, str(path))
    with path.open("rb") as file:
        start = file.read(len(SQLITE_MAGIC))
    if start == SQLITE_MAGIC:
        return Source(str(path), folder, path, database=path)
    untrusted.require_memory(COPIES * size, size, str(path))
    return Source(str(path), folder, path)


def _refuse_size(size: int, where: str) -> None:
    if size > limits.MAX_JSON_BYTES:
        raise InputError(f"has {size:,} bytes", where=where, allowed=f"{limits.MAX_JSON_BYTES:,}",
                         remedy="record fewer steps")  # fmt: skip


def _named_as_traces(path: Path) -> list[Path]:
    result = [p for p in sorted(path.rglob("*")) if p.name.lower().endswith(TRACE_ENDINGS) and not p.is_dir()]
    predicted = {p.parent for p in result if p.name == "prediction.json" and (p.parent / "nodes.parquet").is_file()}
    result = [p for p in result if p.parent not in predicted or p.name not in PREDICTED]
    return [p for p in result if not any(part.startswith(".") for part in p.relative_to(path).parts)]


def _archive(path: Path) -> Iterator[Source]:
    members = _zip_members if path.name.lower().endswith(".zip") else _tar_members
    if not path.is_file():
        raise InputError("is not a file", where=str(path), allowed=FORMS)
    with untrusted.reading(path, "is not a readable archive", remedy="copy the archive again"):
        for member, data in members(path):
            parts = PurePosixPath(member).parts
            hidden = any(part.startswith(("._", "__MACOSX")) for part in parts)
            if member.lower().endswith(JSON_ENDINGS) and not hidden:
                yield Source(f"{path}/{member}", "/".join(parts[:-1]), data)


def _zip_members(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        entries = [e for e in archive.infolist() if not e.is_dir()]
        _check_archive(path, len(entries), sum(e.file_size for e in entries), path.stat().st_size)
        for entry in entries:
            _check_member(path, entry.filename)
            if entry.filename.lower().endswith(JSON_ENDINGS):
                if entry.compress_type not in ZIP_METHODS:
                    raise InputError(f"packs {entry.filename[:80]!r} by method {entry.compress_type}", where=str(path),
                                     allowed="stored or deflated", remedy="pack it again")  # fmt: skip
                with archive.open(entry) as stream:
                    yield entry.filename, _bounded(stream, entry.file_size, f"{path}/{entry.filename}")


def _tar_members(path: Path) -> Iterator[tuple[str, bytes]]:
    packed = path.stat().st_size
    with path.open("rb") as file:
        is_gzip = file.read(2) == GZIP_MAGIC
        file.seek(0)
        stream = _Counted(igzip.IGzipFile(fileobj=file) if is_gzip else file, path, packed)
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
            for count, entry in enumerate(archive, 1):
                archive.members = []  # type: ignore[attr-defined]  # it would keep every header
                _check_archive(path, count, stream.count, packed)
                _check_member(path, entry.name)
                content = archive.extractfile(entry) if entry.isreg() else None
                if content is not None and entry.name.lower().endswith(JSON_ENDINGS):
                    yield entry.name, _bounded(content, entry.size, f"{path}/{entry.name}")


class _Member(tarfile.TarInfo):
    """A member of ordinary kind: headers of bounded size, and no holes, which read as zeros without end."""

    HEADERS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
               tarfile.SOLARIS_XHDTYPE)  # fmt: skip

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in self.HEADERS and not 0 <= self.size <= limits.MAX_TAR_HEADER_BYTES:
            raise ValueError(f"a tar header of {self.size:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            self._refuse_sparse()
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]  # made for subclasses, not in the stub

    def _refuse_sparse(self, *_: object) -> None:
        raise ValueError("a sparse file in it, tar's --sparse")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


class _Counted(io.RawIOBase):
    """A stream that counts what it unpacks and stops an archive without end."""

    def __init__(self, stream: Any, path: Path, packed: int) -> None:
        self.stream, self.path, self.packed, self.count = stream, path, packed, 0

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.count += len(data)
        _check_archive(self.path, 0, self.count, self.packed)
        return data


def _check_archive(path: Path, members: int, unpacked: int, packed: int) -> None:
    if members > limits.MAX_ARCHIVE_MEMBERS:
        raise InputError(f"holds {members} files", where=str(path), allowed=str(limits.MAX_ARCHIVE_MEMBERS))
    if unpacked > limits.MAX_ARCHIVE_BYTES or untrusted.is_bomb(unpacked, packed):
        raise InputError(f"unpacks to more than {unpacked:,} bytes from {packed:,}", where=str(path),
                         remedy="unpack it yourself if you trust it, and give the folder")  # fmt: skip


def _check_member(path: Path, member: str) -> None:
    """Nothing is ever written, but an archive that names files outside its folder is not a recording."""
    parts = PurePosixPath(member.replace("\\", "/")).parts
    if ".." in parts or member.startswith(("/", "\\")) or (parts and parts[0].endswith(":")):
        raise InputError(f"names a file outside its folder: {member[:80]!r}", where=str(path))


def _bounded(stream: IO[bytes], size: int, where: str) -> bytes:
    _refuse_size(size, where)
    untrusted.require_memory(COPIES * size, size, where)
    return stream.read(size)


def _gunzip(data: bytes, where: str) -> bytes:
    """Unpack, in one piece where the size is harmless, stopping where it is not."""
    unpacker = isal_zlib.decompressobj(wbits=31)
    pieces, count, rest = [], 0, data
    try:
        while rest:
            piece = unpacker.decompress(rest, untrusted.RATIO_FLOOR_BYTES)
            pieces.append(piece)
            count += len(piece)
            untrusted.require_memory(COPIES * count, len(data), where)
            if count > limits.MAX_JSON_BYTES or untrusted.is_bomb(count, len(data)):
                raise InputError(f"unpacks to more than {count:,} bytes from {len(data):,}", where=where,
                                 allowed=f"{limits.MAX_JSON_BYTES:,} bytes, {untrusted.MAX_RATIO:g} to 1",
                                 remedy="record fewer steps, or unpack the file yourself if you trust it")  # fmt: skip
            rest = unpacker.unconsumed_tail
            if unpacker.eof:
                rest = unpacker.unused_data  # another member of the same file
                unpacker = isal_zlib.decompressobj(wbits=31)
                if rest[:2] != GZIP_MAGIC:
                    break
            elif not rest and not piece:
                raise EOFError("cut off")
        else:
            raise EOFError("cut off")
    except (ISAL_ERROR, zlib.error, EOFError):
        raise InputError("is a gzip file that is cut off or damaged", where=where,
                         remedy="copy or record the file again") from None  # fmt: skip
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
