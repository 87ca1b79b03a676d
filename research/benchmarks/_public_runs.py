"""The public runs that the graph is judged on, imported from the mirror or a fetch folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.trace import RunTrace, read_run
from gnnperf.trace.public.catalog import Recording, load_catalog, recordings

GRAPH_RUNS = (
    "dlrm-8", "megatron-tp2", "torchrec/trace/", "torchrec/log/resnet18", "hta/trace_diff/control",
    "hta/df_index_resolver", "hta/ns_resolution_trace", "hta/nccl_parser_config",
    "hta/negative_queue_length_values_check", "kineto-resnet50/",
)  # fmt: skip


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
