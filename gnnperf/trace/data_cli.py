"""`gnnperf inspect PATH...` and `gnnperf data list | fetch`; a package above adds `data build`."""

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from gnnperf.core import InputError, Subparsers, add_command, print_result, task, to_json, write_out
from gnnperf.trace.public.catalog import Entry, load_catalog, select
from gnnperf.trace.public.fetch import Origin, fetch

MIRROR_VARIABLE = "GNNPERF_DATA_MIRROR"
FOLDER = Path("datasets/public")
CONNECTIONS = 4
MAX_FAILURES = 20  # of files: then the network is down, and the rest is not tried
INSPECT = (
    "List what a trace holds and what is missing. Several paths are one run: Kineto files and their execution traces."
)
INSPECT_EXAMPLES = """\
gnnperf inspect trace.json.gz
gnnperf inspect runs/trace_dir --run 2 --json                the second recording of a folder, for a program to read
gnnperf inspect rank_0.kineto.json.gz rank_0.et.json.gz      one rank: its trace and its execution trace
"""
LIST = "What the catalog holds: runs and tables with size, GPU, ranks and license. Patterns as in a shell."
LIST_EXAMPLES = """\
gnnperf data list                                  runs and tables
gnnperf data list --run 'torchrec/*' --files       the files of some runs
gnnperf data list --kind op-table --json
"""
FETCH = "Bring files of the catalog into a folder; each is verified by its SHA-256, and one that is there stays."
FETCH_EXAMPLES = """\
gnnperf data fetch worker0.1623212756351.pt.trace.json.gz --to traces
gnnperf data fetch --run dlrm-8
gnnperf data fetch --kind '*' --mirror MIRROR      everything, from a folder
"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add `inspect`."""
    short = "what a trace holds: ranks, steps, shapes, collectives, and what is missing"
    inspecting = add_command(subparsers, "inspect", short, INSPECT, INSPECT_EXAMPLES, inspect_paths)
    inspecting.add_argument("path", nargs="+", type=Path, metavar="PATH", help="file, directory of rank files, archive")
    inspecting.add_argument("--run", dest="recording", type=int, metavar="NUMBER", help="of several in one folder")


def add_data_parsers(subparsers: Subparsers) -> Subparsers:
    """Add `data`, `data list` and `data fetch`; returns what further commands of `data` are added to."""
    data = subparsers.add_parser("data", help="list and fetch public measurements, build a data set of your own")
    commands: Subparsers = data.add_subparsers(dest="data_command", required=True, metavar="COMMAND")
    listing = add_command(commands, "list", "runs and tables, or single files", LIST, LIST_EXAMPLES, list_entries)
    _add_selection(listing)
    listing.add_argument("--files", action="store_true", help="one line per file")
    fetching = add_command(commands, "fetch", "bring files into a folder, verified", FETCH, FETCH_EXAMPLES,
                           fetch_entries)  # fmt: skip
    _add_selection(fetching)
    fetching.add_argument("--to", type=Path, default=FOLDER, metavar="DIR",
                          help=f"folder for files (default: {FOLDER})")  # fmt: skip
    fetching.add_argument("--mirror", type=Path, metavar="DIR",
                          help=f"take files from this folder (default: ${MIRROR_VARIABLE}, if set)")  # fmt: skip
    return commands


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="file, as listed, or a pattern")
    parser.add_argument("--run", dest="runs", action="append", default=[], metavar="RUN", help="run, or a pattern")
    parser.add_argument(
        "--kind", dest="kinds", action="append", default=[], metavar="KIND", help="kineto, op-table, ..."
    )


def inspect_paths(args: argparse.Namespace) -> None:
    """Print what the paths hold."""
    from gnnperf.core import console  # only what is requested is imported
    from gnnperf.trace import read_run
    from gnnperf.trace.inspect import document, inspect, print_inspection

    result = inspect(read_run(args.path, recording=args.recording))
    if args.json:
        write_out(to_json(document(result)))
    else:
        print_inspection(result, console())


def list_entries(args: argparse.Namespace) -> None:
    """Print runs and tables, one line each, or files; as JSON files with all that the catalog has."""
    chosen = select(load_catalog(), names=args.names, runs=args.runs, kinds=args.kinds)
    if args.files or args.names:
        rows: list[tuple[str, ...]] = [("kind", "run", "bytes", "license", "name")]
        rows += [(e.kind, e.run or "-", f"{e.size_bytes:,}", e.license, e.name) for e in chosen]
    else:
        rows = [("kind", "run", "files", "bytes", "gpu", "ranks", "license", "repository")]
        rows += [_summary(list(group)) for _, group in groupby(sorted(chosen, key=_group_of), key=_group_of)]
    print_result(args, lambda: [vars(entry) for entry in chosen], lambda: _columns(rows))


def _group_of(entry: Entry) -> tuple[str, str, str]:
    return entry.kind, entry.run or "", entry.repo


def _summary(group: list[Entry]) -> tuple[str, ...]:
    """One line for the files of a run, or of a repository's tables; - where the catalog does not know."""
    gpus = sorted({e.gpu for e in group if e.gpu})
    worlds = {e.world_size for e in group if e.world_size}
    licenses = sorted({e.license for e in group})
    size_bytes = sum(e.size_bytes for e in group)
    first = group[0]
    return (
        first.kind, first.run or "-", str(len(group)), f"{size_bytes:,}", "; ".join(gpus) or "-",
        str(max(worlds)) if worlds else "-", "; ".join(licenses), first.repo,
    )  # fmt: skip


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(td.ljust(width) for td, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def fetch_entries(args: argparse.Namespace) -> None:
    """Fetch the chosen files; print where they are."""
    if not (args.names or args.runs or args.kinds):
        raise InputError("nothing chosen", allowed="NAME, --run RUN, --kind KIND (patterns allowed)",
                         remedy="see `gnnperf data list`; everything is --kind '*'")  # fmt: skip
    chosen = select(load_catalog(), names=args.names, runs=args.runs, kinds=args.kinds)
    named = args.mirror or os.environ.get(MIRROR_VARIABLE)
    if named and not Path(named).is_dir():
        remedy = f"correct --mirror or {MIRROR_VARIABLE}"
        raise InputError("the mirror is not a folder", where=str(named), remedy=remedy)
    _fetch_all(chosen, args.to, Origin(mirror=Path(named) if named else None))
    print_result(args, lambda: [str(args.to / entry.name) for entry in chosen],
                 lambda: f"{len(chosen)} files, verified, in {args.to}")  # fmt: skip


def _fetch_all(entries: Sequence[Entry], folder: Path, origin: Origin) -> None:
    """Whatever can be fetched is, `CONNECTIONS` at a time, then the failures are one message."""
    failures: list[InputError] = []

    def attempt(entry: Entry) -> None:
        if len(failures) < MAX_FAILURES:
            try:
                fetch(entry, folder, origin)
            except InputError as error:
                failures.append(error)

    with ThreadPoolExecutor(CONNECTIONS) as pool, task("fetching", len(entries), "files") as advance:
        for _ in pool.map(attempt, entries):
            advance(1.0)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        shown = "".join(f"\n  {failure}" for failure in failures[:MAX_FAILURES])
        raise InputError(f"{len(failures)} of {len(entries)} files could not be fetched into {folder}:{shown}")
