"""`gnnperf inspect PATH...` and `gnnperf data list | fetch`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from gnnperf.core import InputError, say, task
from gnnperf.trace.public.catalog import Entry, load_catalog, select
from gnnperf.trace.public.fetch import Origin, fetch

MIRROR_VARIABLE = "GNNPERF_DATA_MIRROR"
FOLDER = Path("datasets/public")
CONNECTIONS = 4
MAX_FAILURES = 20  # of files: then the network is down, and the rest is not tried


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `inspect`, `data` and the two commands of `data`."""
    inspecting = subparsers.add_parser(
        "inspect",
        help="what a trace holds: ranks, steps, shapes, collectives, and what is missing",
        description="Say what a trace holds. Several paths are one run: Kineto files and their execution traces.",
    )
    inspecting.add_argument("path", nargs="+", type=Path, metavar="PATH", help="file, directory of rank files, archive")
    inspecting.add_argument("--run", dest="recording", type=int, metavar="NUMBER", help="of several in one folder")
    inspecting.set_defaults(run=inspect_paths)
    data = subparsers.add_parser("data", help="list and fetch public measurements")
    commands = data.add_subparsers(dest="data_command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="what there is: runs and tables, or single files")
    _add_selection(listing)
    listing.add_argument("--files", action="store_true", help="one line per file")
    listing.set_defaults(run=list_entries)
    fetching = commands.add_parser("fetch", help="bring files into a folder, verified")
    _add_selection(fetching)
    _add_origin(fetching)
    fetching.set_defaults(run=fetch_entries)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="file, as listed, or a pattern")
    parser.add_argument("--run", dest="runs", action="append", default=[], metavar="RUN", help="run, or a pattern")
    parser.add_argument("--kind", dest="kinds", action="append", default=[], metavar="KIND", help="kind of file")


def _add_origin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, default=FOLDER, metavar="DIR", help=f"folder for files (default: {FOLDER})")
    parser.add_argument(
        "--mirror", type=Path, metavar="DIR", help=f"take files from this folder (default: ${MIRROR_VARIABLE}, if set)"
    )


def inspect_paths(args: argparse.Namespace) -> int:
    """Print what the paths hold."""
    from gnnperf.core import console  # only what is requested is imported
    from gnnperf.trace import read_run
    from gnnperf.trace.inspect import inspect, print_inspection

    print_inspection(inspect(read_run(args.path, recording=args.recording)), console())
    return 0


def list_entries(args: argparse.Namespace) -> int:
    """Print runs and tables, one line each, or files."""
    chosen = select(load_catalog(), names=args.names, runs=args.runs, kinds=args.kinds)
    if args.files or args.names:
        files = [(e.kind, e.run or "-", f"{e.size_bytes:,}", e.license, e.name) for e in chosen]
        _print_columns([("kind", "run", "bytes", "license", "name"), *files])
    else:
        runs = [_summary(list(group)) for _, group in groupby(sorted(chosen, key=_group_of), key=_group_of)]
        _print_columns([("kind", "run", "files", "bytes", "gpu", "ranks", "license", "repository"), *runs])
    return 0


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


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        say("  ".join(td.ljust(width) for td, width in zip(row, widths, strict=True)).rstrip())


def fetch_entries(args: argparse.Namespace) -> int:
    """Fetch the chosen files; print where they are."""
    chosen = _chosen(args)
    _fetch_all(chosen, args.to, _origin(args))
    say(f"{len(chosen)} files, verified, in {args.to}")
    return 0


def _chosen(args: argparse.Namespace) -> tuple[Entry, ...]:
    if not (args.names or args.runs or args.kinds):
        raise InputError("nothing chosen", allowed="NAME, --run RUN, --kind KIND (patterns allowed)",
                         remedy="see `gnnperf data list`; everything is --kind '*'")  # fmt: skip
    return select(load_catalog(), names=args.names, runs=args.runs, kinds=args.kinds)


def _origin(args: argparse.Namespace) -> Origin:
    named = args.mirror or os.environ.get(MIRROR_VARIABLE)
    if named and not Path(named).is_dir():
        remedy = f"correct --mirror or {MIRROR_VARIABLE}"
        raise InputError("the mirror is not a folder", where=str(named), remedy=remedy)
    return Origin(mirror=Path(named) if named else None)


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
