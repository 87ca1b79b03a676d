"""The public runs that the graph is judged on, imported from the mirror or a fetch folder."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.trace import RunTrace, read_run
from gnnperf.trace.public.catalog import Entry, load_catalog

TRACE_KINDS = ("kineto", "execution-trace", "archive")
GRAPH_RUNS = (
    "dlrm-8", "megatron-tp2", "torchrec/trace/", "torchrec/log/resnet18", "hta/trace_diff/control",
    "hta/df_index_resolver", "hta/ns_resolution_trace", "hta/nccl_parser_config",
    "hta/negative_queue_length_values_check", "kineto-resnet50/",
)  # fmt: skip


@dataclass(frozen=True)
class Recording:
    """Files that were recorded together."""

    name: str  # folder name for the run, unique in the catalog
    entries: tuple[Entry, ...]  # its rank files, execution traces and archives


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
    distinct = len({(e.repo, e.path) for e in files}) == len(files)  # no two are versions of one upstream file
    together = len(files) == 1 or (None not in ranked and len(set(ranked)) == len(ranked) and distinct)
    if together:
        yield Recording(_folder_name(run), files)
        return
    for entry in files:
        yield Recording(f"{_folder_name(run)}-{entry.sha256[:8]}", (entry,))


def _folder_name(text: str) -> str:
    """A name without folders and without the suffixes of a trace file."""
    plain = re.sub(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.tgz|\.tar\.gz)?$", "", text)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain)


def mirror() -> Path:
    """The folder that holds the public traces; ends the benchmark with a message if there is none."""
    folder = Path(os.environ.get("GNNPERF_DATA_MIRROR", "datasets/public"))
    if not folder.is_dir():
        sys.exit("no public traces: `gnnperf data fetch`, or set GNNPERF_DATA_MIRROR to a folder that holds them")
    return folder


def graph_recordings(prefixes: tuple[str, ...] = GRAPH_RUNS) -> Iterator[Recording]:
    """The recordings named above that have step marks (or are single steps) and device work."""
    chosen = [e for e in load_catalog() if e.run and e.run.startswith(prefixes)]
    steps_known = [e for e in chosen if not (e.run or "").startswith("kineto-resnet50/") or e.steps]
    yield from (r for r in recordings(steps_known) if r.name != "dlrm-8-linked-et")


def imported(recording: Recording) -> tuple[RunTrace, ExecutionGraph]:
    """A recording's traces and graph; execution traces are linked where they come along."""
    paths = [mirror() / entry.name for entry in recording.entries]
    run = read_run(paths if len(paths) > 1 else paths[0])
    return run, build_graph(run)
