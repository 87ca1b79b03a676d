"""What commands share: examples in the help, results as text or as JSON, when memory is collected and returned."""

import argparse
import atexit
import ctypes
import gc
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gnnperf.core.terminal import say, write_out

Subparsers = Any  # argparse._SubParsersAction, which is not generic at run time
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
REUSED_BYTES = 2**30  # smaller arrays are reused
COLLECT_AFTER = 500_000  # new objects; after 700, as by default, 3 to 8 % of a command is search for cycles


def collect_rarely() -> None:
    """Let the cycle collector of this process run rarely: imports and tables make many objects, and few cycles.

    At the end it does not run at all. It took a tenth of a command to search for what the system takes back at once.
    """
    gc.set_threshold(COLLECT_AFTER)
    atexit.register(gc.freeze)


def reuse_memory() -> None:
    """Let this process reuse the memory of arrays that it frees; call it before numpy is loaded.

    Else glibc returns larger arrays to the system, which clears every page anew, and clears 2 MB at once where numpy
    requests that. Both took a tenth of the time of a long trace.
    """
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            for option in (TRIM_THRESHOLD, MMAP_THRESHOLD):
                ctypes.CDLL(None).mallopt(option, REUSED_BYTES)


def use_python_strings() -> None:
    """Let pandas hold the texts of this process as strings of Python; call it where a command needs pandas.

    Names of columns are texts, too, and Arrow, the default, makes a string anew whenever one is read: an eighth of the
    time of a small recording.
    """
    import pandas as pd

    pd.set_option("mode.string_storage", "python")


def return_freed_memory() -> None:
    """Return to the system what this process has freed."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def add_command(
    subparsers: Subparsers, name: str, short: str, about: str, examples: str,
    run: Callable[[argparse.Namespace], int | None], has_json: bool = True,
) -> argparse.ArgumentParser:  # fmt: skip
    """Add a subcommand.

    Args:
        subparsers: of the command that it belongs to.
        name: of the subcommand.
        short: its line in the list of commands.
        about: the description, as it is printed.
        examples: one command per line, with what may stand below them.
        run: takes the parsed options, and returns the exit code; None: 0.
        has_json: whether it gets `--json`; False: it has no result, or an option of its own.
    """
    indented = re.sub("^gnnperf ", "  gnnperf ", examples, flags=re.MULTILINE)
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=short, description=about, epilog=f"examples:\n{indented}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    if has_json:
        parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run, parser=parser)
    return parser


def print_result(args: argparse.Namespace, document: Callable[[], Any], text: Callable[[], str]) -> None:
    """The result on standard output: as JSON with `--json`, else as text; only that one is made."""
    if args.json:
        from gnnperf.core.documents import to_json  # recorders run where its library is not installed

        write_out(to_json(document(), indent=1))
    else:
        say(text())
