"""Bring entries of the catalog into a folder, verified, from GitHub or from a mirror.

The folder has the layout of a mirror, so that it can serve as one: FOLDER/<entry.name>.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import shutil
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gnnperf.core import InputError
from gnnperf.trace.public.catalog import Entry

# One URL into one file: size limit, timeouts, retries with back-off, and resuming where a connection broke.

# Whether bytes on disk are the ones the catalog promises.

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


TIMEOUT_S = 30.0
BACK_OFF_S = (1.0, 2.0, 4.0, 8.0)  # pauses between five attempts
PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
RANGE_REFUSED = 416
OfflineError = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class _BrokenOffError(ConnectionError):
    """The server closed before it had sent what it announced."""


def download(
    url: str,
    part: Path,
    *,
    limit_bytes: int,
    on_bytes: Callable[[int], None] = lambda count: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Append to `part` what is still missing of `url`, trying again after passing faults.

    Args:
        url: where the file lies.
        part: partial file, kept on failure so that the next call resumes it.
        limit_bytes: refuse more than this.
        on_bytes: given the size of every piece written (negative when a partial file is thrown away).
        sleep: how to wait between attempts.
    """
    for pause_s in (*BACK_OFF_S, None):
        try:
            return _attempt(url, part, limit_bytes, on_bytes)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == RANGE_REFUSED:  # the partial file is not a beginning of what lies there
                on_bytes(-part.stat().st_size)
                part.unlink()
            elif error.code not in PASSING_STATUS:
                raise _refused(url, f"HTTP {error.code} {error.reason}") from error
            fault: Exception = error
        except OfflineError as error:
            if isinstance(getattr(error, "reason", None), socket.gaierror):  # no network at all: waiting will not help
                raise _refused(url, "the name of the server cannot be resolved") from error
            fault = error
        if pause_s is None:
            raise _refused(url, str(getattr(fault, "reason", fault)) or type(fault).__name__) from fault
        sleep(pause_s)


def _attempt(url: str, part: Path, limit_bytes: int, on_bytes: Callable[[int], None]) -> None:
    """One request, from where the partial file ends."""
    have_bytes = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have_bytes}-"} if have_bytes else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        resumed = response.status == http.client.PARTIAL_CONTENT
        if not resumed:  # the server sent the whole file again
            on_bytes(-have_bytes)
            have_bytes = 0
        announced = response.headers.get("Content-Length")
        with part.open("ab" if resumed else "wb") as file:
            received_bytes = 0
            while chunk := response.read(CHUNK_BYTES):
                received_bytes += len(chunk)
                if have_bytes + received_bytes > limit_bytes:
                    part.unlink()
                    raise _refused(url, f"more than the {limit_bytes:,} bytes expected")
                file.write(chunk)
                on_bytes(len(chunk))
    if announced is not None and received_bytes < int(announced):
        raise _BrokenOffError(f"the connection broke off after {received_bytes:,} of {announced} bytes")


def _refused(url: str, why: str) -> InputError:
    remedy = "try again (what arrived is kept and resumed), or take the file from a mirror with --mirror DIR"
    return InputError(f"could not be downloaded: {why}", where=url, remedy=remedy)


GITHUB_RAW = "https://raw.githubusercontent.com"
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Origin:
    """Where files come from: a mirror folder if there is one, else `base_url`/repo/commit/path."""

    mirror: Path | None = None
    base_url: str = GITHUB_RAW


def fetch(entry: Entry, folder: Path, origin: Origin, on_bytes: Progress = lambda count: None) -> Path:
    """Make sure that FOLDER/<entry.name> holds what the catalog promises; return its path.

    A verified file that is there already is left as it is. A new one appears whole and verified, or not at all; only
    a `.part` next to it may stay behind, for the next call to resume.

    Raises:
        InputError: out of reach, not in the mirror, other bytes than promised, or a folder that cannot be written.
    """
    target = folder / entry.name
    try:
        if target.is_file() and is_promised(entry, target):
            on_bytes(entry.size_bytes)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        if origin.mirror is not None:
            _from_mirror(entry, target, origin.mirror, on_bytes)
        else:
            _from_upstream(entry, target, origin.base_url, on_bytes)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(target)) from error
    return target


def upstream_url(entry: Entry, base_url: str = GITHUB_RAW) -> str:
    """The address of exactly the bytes that were cataloged; refuses an entry whose commit is not known."""
    if entry.commit is None:
        what = "the commit that published this file is not known"
        raise InputError(what, where=entry.name, remedy="use a mirror: --mirror DIR")
    return f"{base_url}/{entry.repo}/{entry.commit}/{urllib.parse.quote(entry.path)}"


def _from_mirror(entry: Entry, target: Path, mirror: Path, on_bytes: Progress) -> None:
    source = mirror / entry.name
    if not source.is_file():
        remedy = "fetch without --mirror and GNNPERF_DATA_MIRROR, or update it"
        raise InputError("not in the mirror", where=str(source), remedy=remedy)
    part = target.with_name(target.name + ".part")
    shutil.copyfile(source, part)
    on_bytes(part.stat().st_size)
    if not is_promised(entry, part):
        part.unlink()
        raise _other_bytes(entry, str(source))
    part.replace(target)


def _from_upstream(entry: Entry, target: Path, base_url: str, on_bytes: Progress) -> None:
    url, part = upstream_url(entry, base_url), target.with_name(target.name + ".part")
    same_size = entry.mirror_sha256 == entry.sha256
    limit_bytes = entry.size_bytes if same_size else MAX_PLAIN_BYTES
    resumed = part.exists()
    if not (resumed and sha256_of(part) == entry.sha256):  # a run that ended between download and rename
        download(url, part, limit_bytes=limit_bytes, on_bytes=on_bytes)
    if sha256_of(part) != entry.sha256 and resumed:  # what was kept may be the beginning of something else
        part.unlink()
        download(url, part, limit_bytes=limit_bytes, on_bytes=on_bytes)
    if sha256_of(part) != entry.sha256:
        part.unlink()
        raise _other_bytes(entry, url)
    if entry.recompressed:
        part = _packed(part)
    part.replace(target)


def _packed(part: Path) -> Path:
    """Gzip a partial file, always to the same bytes, and remove it."""
    packed = part.with_name(part.name + ".gz")
    with (
        part.open("rb") as source,
        packed.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as target,
    ):
        shutil.copyfileobj(source, target, CHUNK_BYTES)
    part.unlink()
    return packed


def _other_bytes(entry: Entry, where: str) -> InputError:
    remedy = "nothing was kept; fetch again, and if it stays so the source has changed: please report it"
    return InputError(f"other bytes than the catalog promises (sha256 {entry.sha256})", where=where, remedy=remedy)
