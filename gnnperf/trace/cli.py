"""The command `gnnperf inspect PATH...`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parsers(subparsers: Any) -> None:
    """Add `inspect` to the subcommands of `gnnperf`."""
    parser = subparsers.add_parser(
        "inspect",
        help="what a trace holds: ranks, steps, shapes, collectives, and what is missing",
        description="Say what a trace holds. Several paths are one run: Kineto files and their execution traces.",
    )
    parser.add_argument("path", nargs="+", type=Path, metavar="PATH", help="file, directory of rank files, or archive")
    parser.set_defaults(run=_inspect)


def _inspect(args: argparse.Namespace) -> int:
    from gnnperf.core import console  # only what is requested is imported
    from gnnperf.trace.inspect import inspect
    from gnnperf.trace.inspect_text import print_inspection

    print_inspection(inspect(args.path), console())
    return 0
