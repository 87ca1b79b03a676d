"""Bring entries of the catalog into a folder, verified, from GitHub or from a mirror.

The folder has the layout of a mirror, so that it can serve as one: FOLDER/<entry.name>. The largest file has 4 MB, so
a download that breaks off begins anew.
"""

import gzip
import hashlib
import http.client
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gnnperf.core import InputError, write_bytes
from gnnperf.trace.public.catalog import Entry

MAX_BYTES = 1 << 30  # no public file is larger, unpacked or not; more is a decompression bomb
TIMEOUT_S = 30.0
BACK_OFF_S = (1.0, 2.0, 4.0, 8.0)  # pauses between five attempts
PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
OfflineError = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
GITHUB_RAW = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Origin:
    """Where files come from: a mirror folder if there is one, else `base_url`/repo/commit/path."""

    mirror: Path | None = None
    base_url: str = GITHUB_RAW


def fetch(entry: Entry, folder: Path, origin: Origin) -> Path:
    """Make sure that FOLDER/<entry.name> holds what the catalog promises; return its path.

    A verified file that is there already is left as it is. A new one appears whole and verified, or not at all.

    Raises InputError: out of reach, not in the mirror, other bytes than promised, or a folder that cannot be written.
    """
    target = folder / entry.name
    try:
        if target.is_file() and is_promised(entry, target.read_bytes()):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(target)) from error
    write_bytes(target, _from_upstream(entry, origin.base_url) if origin.mirror is None else
                _from_mirror(entry, origin.mirror))  # fmt: skip
    return target


def is_promised(entry: Entry, content: bytes) -> bool:
    """Whether this is the file of the entry: mirrored bytes, upstream bytes, or upstream's re-compressed."""
    if hashlib.sha256(content).hexdigest() in (entry.mirror_sha256, entry.sha256):
        return True
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(content, MAX_BYTES)
    except zlib.error:
        return False
    return entry.recompressed and unpacker.eof and hashlib.sha256(unpacked).hexdigest() == entry.sha256


def _from_mirror(entry: Entry, mirror: Path) -> bytes:
    source = mirror / entry.name
    if not source.is_file():
        remedy = "fetch without --mirror and GNNPERF_DATA_MIRROR, or update it"
        raise InputError("not in the mirror", where=str(source), remedy=remedy)
    content = source.read_bytes()
    if not is_promised(entry, content):
        raise _other_bytes(entry, str(source))
    return content


def upstream_url(entry: Entry, base_url: str = GITHUB_RAW) -> str:
    """The address of exactly the bytes that were cataloged; refuses an entry whose commit is not known."""
    if entry.commit is None:
        what = "the commit that published this file is not known"
        raise InputError(what, where=entry.name, remedy="use a mirror: --mirror DIR")
    return f"{base_url}/{entry.repo}/{entry.commit}/{urllib.parse.quote(entry.path)}"


def _from_upstream(entry: Entry, base_url: str) -> bytes:
    url = upstream_url(entry, base_url)
    same_size = entry.mirror_sha256 == entry.sha256
    content = download(url, limit_bytes=entry.size_bytes if same_size else MAX_BYTES)
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise _other_bytes(entry, url)
    return gzip.compress(content, 6, mtime=0) if entry.recompressed else content


def _other_bytes(entry: Entry, where: str) -> InputError:
    remedy = "nothing was kept; fetch again, and if it stays so the source has changed: please report it"
    return InputError(f"other bytes than the catalog promises (sha256 {entry.sha256})", where=where, remedy=remedy)


def download(url: str, *, limit_bytes: int, sleep: Callable[[float], None] = time.sleep) -> bytes:
    """The bytes of a URL, at most `limit_bytes`; passing faults are tried again after a pause."""
    for pause_s in (*BACK_OFF_S, None):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
                content: bytes = response.read(limit_bytes + 1)
            if len(content) > limit_bytes:
                raise _refused(url, f"more than the {limit_bytes:,} bytes expected")
            if response.length:
                raise ConnectionError(f"the connection broke off after {len(content):,} bytes")
            return content
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in PASSING_STATUS:
                raise _refused(url, f"HTTP {error.code} {error.reason}") from error
            fault: Exception = error
        except OfflineError as error:
            if isinstance(getattr(error, "reason", None), socket.gaierror):  # no network at all: waiting will not help
                raise _refused(url, "the name of the server cannot be resolved") from error
            fault = error
        if pause_s is None:
            raise _refused(url, str(getattr(fault, "reason", fault)) or type(fault).__name__) from fault
        sleep(pause_s)
    raise AssertionError("the last attempt returns or raises")


def _refused(url: str, why: str) -> InputError:
    return InputError(f"could not be downloaded: {why}", where=url,
                      remedy="try again, or take the file from a mirror with --mirror DIR")  # fmt: skip
