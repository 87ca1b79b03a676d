"""From fetched files to TraceTables: one folder per recorded run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from gnnperf.trace.public.catalog import Entry

TRACE_KINDS = ("kineto", "execution-trace", "archive")


@dataclass(frozen=True)
class Recording:
    """Files that were recorded together.

    Attributes:
        name: folder name for the run, unique in the catalog.
        entries: its rank files, execution traces and archives.
    """

    name: str
    entries: tuple[Entry, ...]


def recordings(entries: Sequence[Entry]) -> tuple[Recording, ...]:
    """Group trace files by the recording they belong to.

    Some repositories published one file again and again under one name: several Kineto files that are not known to
    be different ranks are different recordings.
    """
    traces = sorted((e for e in entries if e.run and e.kind in TRACE_KINDS), key=lambda e: (e.run or "", e.name))
    return tuple(r for run, group in groupby(traces, key=lambda e: e.run or "") for r in _split(run, tuple(group)))


def _split(run: str, files: tuple[Entry, ...]) -> Iterator[Recording]:
    """One recording, or one per file."""
    ranked = [e.rank for e in files if e.kind == "kineto"]
    together = len(files) == 1 or (None not in ranked and len(set(ranked)) == len(ranked) and _distinct(files))
    if together:
        yield Recording(_folder_name(run), files)
        return
    for entry in files:
        yield Recording(f"{_folder_name(run)}-{entry.sha256[:8]}", (entry,))


def _distinct(files: tuple[Entry, ...]) -> bool:
    """Whether no two files are versions of the same upstream file."""
    return len({(e.repo, e.path) for e in files}) == len(files)


def _folder_name(text: str) -> str:
    """A name without folders and without the suffixes of a trace file."""
    plain = re.sub(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.tgz|\.tar\.gz)?$", "", text)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain)


def build(recording: Recording, folder: Path, out: Path) -> Path:
    """Import one recording whose files lie in `folder` into TraceTables below `out`; return their folder.

    Raises:
        InputError: the files cannot be read as one run.
    """
    from gnnperf.trace import read_run  # only here: `gnnperf data list` needs no pandas
    from gnnperf.trace.storage import write_run

    target = out / recording.name
    run = read_run([folder / entry.name for entry in recording.entries], name=recording.name)
    write_run(run, target)
    return target
