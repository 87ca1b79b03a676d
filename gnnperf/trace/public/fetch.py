"""Bring entries of the catalog into a folder, verified, from GitHub or from a mirror.

The folder has the layout of a mirror, so that it can serve as one: FOLDER/<entry.name>.
"""

from __future__ import annotations

import gzip
import shutil
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gnnperf.core import InputError
from gnnperf.trace.public.catalog import Entry
from gnnperf.trace.public.download import CHUNK_BYTES, MAX_PLAIN_BYTES, download, is_promised, sha256_of

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
    """The address of exactly the bytes that were cataloged.

    Raises:
        InputError: the commit is not known.
    """
    if entry.commit is None:
        raise InputError(
            "the commit that published this file is not known", where=entry.name, remedy="use a mirror: --mirror DIR"
        )
    return f"{base_url}/{entry.repo}/{entry.commit}/{urllib.parse.quote(entry.path)}"


def _from_mirror(entry: Entry, target: Path, mirror: Path, on_bytes: Progress) -> None:
    source = mirror / entry.name
    if not source.is_file():
        raise InputError(
            "not in the mirror",
            where=str(source),
            remedy="fetch without --mirror and GNNPERF_DATA_MIRROR, or update it",
        )
    part = _part_of(target)
    shutil.copyfile(source, part)
    on_bytes(part.stat().st_size)
    if not is_promised(entry, part):
        part.unlink()
        raise _other_bytes(entry, str(source))
    part.replace(target)


def _from_upstream(entry: Entry, target: Path, base_url: str, on_bytes: Progress) -> None:
    url, part = upstream_url(entry, base_url), _part_of(target)
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


def _part_of(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _other_bytes(entry: Entry, where: str) -> InputError:
    return InputError(
        f"other bytes than the catalog promises (sha256 {entry.sha256})",
        where=where,
        remedy="nothing was kept; fetch again, and if it stays so the source has changed: please report it",
    )
