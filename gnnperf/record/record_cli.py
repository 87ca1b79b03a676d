"""`gnnperf record -- COMMAND` and `gnnperf record --recipe NAME`. torch is loaded by what runs, not by the parser."""

import argparse
import math
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from gnnperf.core import InputError, Subparsers, add_command, load_plugin, plugin_names, print_result

RECIPES = "gnnperf.recipes"  # group of entry points
Recipe = Callable[[argparse.Namespace], int]  # takes the parsed options, returns the exit code
DESCRIPTION = """\
Profile real training runs: any script, unchanged, or a recipe (a data set that a checkout records by itself).

A run directory holds a trace per rank and a card, run.json, with step times with and without the profiler. Nothing else
should run on the machine while a recipe records: a probe rejects recordings during which it changed.
"""
EXAMPLES = """\
gnnperf record --out runs/mine -- torchrun --nproc-per-node 8 train.py   any training script, unchanged
gnnperf record --recipe demo --out runs/demo                             one small two-rank run on this machine
gnnperf record --recipe cpu-gloo --raw raw --out datasets/cpu-gloo       a whole data set; --resume goes on
gnnperf record --recipe gpu --raw raw --out datasets/mine                calibration, runs and interventions on a GPU

With --json, all that is printed meanwhile goes to standard error.
"""


def add_parsers(subparsers: Subparsers) -> None:
    """Add `record`."""
    record = add_command(subparsers, "record", "profile real training runs", DESCRIPTION, EXAMPLES, _record)
    record.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run directory or data set to write")
    record.add_argument("--recipe", choices=plugin_names(RECIPES) or None,
                        help="what to record, if not a command of your own")  # fmt: skip
    record.add_argument("--raw", type=Path, metavar="DIR", help="recipes: where raw traces go, and are kept")
    record.add_argument("--resume", action="store_true", help="recipes: go on with what --raw and --out hold")
    record.add_argument("--minutes", type=float, default=math.inf, metavar="M",
                        help="recipes: no recording begins after that (default: no limit)")  # fmt: skip
    record.add_argument("--warmup-steps", type=int, default=5, metavar="N",
                        help="dropped at first (default: %(default)s)")  # fmt: skip
    record.add_argument("--unprofiled-steps", type=int, default=20, metavar="N",
                        help="then timed without the profiler (default: %(default)s)")  # fmt: skip
    record.add_argument("--profiled-steps", type=int, default=5, metavar="N",
                        help="then timed and traced (default: %(default)s)")  # fmt: skip
    record.usage = "%(prog)s --out DIR [options] -- COMMAND, or %(prog)s --out DIR --recipe NAME [options]"
    record.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the training command")


def _record(arguments: argparse.Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if bool(command) == bool(arguments.recipe):
        raise InputError("a recipe and a command" if command else "nothing to record", where="gnnperf record",
                         allowed="either --recipe NAME or -- COMMAND")  # fmt: skip
    with redirect_stdout(sys.stderr if arguments.json else sys.stdout):
        if arguments.recipe:
            recipe: Recipe = load_plugin(RECIPES, arguments.recipe, "--recipe")
            code = recipe(arguments)
        else:
            from gnnperf.record.wrap import wrap

            code = wrap(command, arguments.out, arguments.warmup_steps, arguments.unprofiled_steps,
                        arguments.profiled_steps, onto=sys.stderr if arguments.json else None)  # fmt: skip
    document = {"out": str(arguments.out), "recipe": arguments.recipe, "command": command, "exit_code": code}
    if arguments.json:
        print_result(arguments, lambda: document, str)
    return code
