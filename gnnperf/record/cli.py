"""`gnnperf record -- COMMAND` and `gnnperf record --recipe NAME`. torch is loaded by what runs, not by the parser."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

from gnnperf.core.errors import InputError
from gnnperf.core.output.terminal import say
from gnnperf.core.progress import task

RECIPES = ("demo", "cpu-gloo", "cpu-again", "cpu-unseen", "cpu-sharding", "cpu-random", "gpu")
DESCRIPTION = """\
Profile real training runs.

  gnnperf record --out runs/mine -- torchrun --nproc-per-node 8 train.py   any training script, unchanged
  gnnperf record --recipe demo --out runs/demo                             one small two-rank run on this machine
  gnnperf record --recipe cpu-gloo --raw raw --out datasets/cpu-gloo       a whole data set; --resume goes on
  gnnperf record --recipe gpu --raw raw --out datasets/mine                calibration, runs and interventions on a GPU

Nothing else should run on the machine while a recipe records: a probe rejects recordings during which it changed.
"""


def add_parsers(subparsers: Any) -> None:
    """Add `record`."""
    record = subparsers.add_parser("record", help="profile real training runs", description=DESCRIPTION,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    record.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run directory or data set to write")
    record.add_argument("--recipe", choices=RECIPES, help="what to record, if not a command of your own")
    record.add_argument("--raw", type=Path, metavar="DIR", help="recipes: where raw traces go, and are kept")
    record.add_argument("--resume", action="store_true", help="recipes: go on with what --raw and --out hold")
    record.add_argument("--minutes", type=float, default=math.inf, metavar="M",
                        help="recipes: no recording begins after that (default: no limit)")  # fmt: skip
    record.add_argument("--warmup-steps", type=int, default=5, metavar="N", help="dropped (default: %(default)s)")
    record.add_argument("--unprofiled-steps", type=int, default=20, metavar="N",
                        help="timed without the profiler (default: %(default)s)")  # fmt: skip
    record.add_argument("--profiled-steps", type=int, default=5, metavar="N",
                        help="timed and traced (default: %(default)s)")  # fmt: skip
    record.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the training command")
    record.set_defaults(run=_record)


def _record(arguments: argparse.Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if bool(command) == bool(arguments.recipe):
        raise InputError("a recipe and a command" if command else "nothing to record", where="gnnperf record",
                         allowed="either --recipe NAME or -- COMMAND")  # fmt: skip
    if command:
        return _command(command, arguments)
    if arguments.recipe == "demo":
        return _demo(arguments.out)
    if arguments.raw is None:
        raise InputError("--raw is missing", where="gnnperf record", remedy="name the folder for the raw traces")
    return _dataset(arguments)


def _command(command: list[str], arguments: argparse.Namespace) -> int:
    from gnnperf.record.wrap import wrap

    return wrap(command, arguments.out, arguments.warmup_steps, arguments.unprofiled_steps, arguments.profiled_steps)


def _demo(out: Path) -> int:
    from gnnperf.record.launch import RankFailed
    from gnnperf.record.run import Steps, record_run
    from gnnperf.record.spec import RunSpec
    from gnnperf.record.workloads.dlrm import Dlrm

    spec = RunSpec(Dlrm())
    try:
        with task("recording", 1, "runs"):  # its steps are counted in other processes
            record_run(out, spec, Steps())
    except RankFailed as failure:
        say(f"gnnperf: {out}: {failure}; the run is marked broken")
        return 1
    say(f"{out}: {spec.name}, complete")
    return 0


def _dataset(arguments: argparse.Namespace) -> int:
    from gnnperf.record.build import build
    from gnnperf.record.calibration import calibrate_first
    from gnnperf.record.dataset import record_all

    plan, began_s = _plan(arguments.recipe), time.monotonic()
    calibrate_first(arguments.raw, plan.calibrate_minutes, say)
    left_s = 60 * arguments.minutes - (time.monotonic() - began_s)
    outcomes = record_all(plan, arguments.raw, say, built=arguments.out, resume=arguments.resume, budget_s=left_s)
    left = [outcome for outcome in outcomes if not outcome.accepted]
    built = build(plan, arguments.raw, arguments.out)  # of whatever there is: a prefix is a data set, too
    say(f"{arguments.out}: {built.recordings} recordings of {len(plan.runs)} runs, {built.size_bytes / 1e6:.2f} MB")
    if left:
        say(f"gnnperf: {len(left)} of {len(outcomes)} recordings were not accepted; --resume tries them again")
    return 1 if left else 0


def _plan(recipe: str) -> Any:
    if recipe == "gpu":
        from gnnperf.record.gpu_recipe import gpu

        return gpu()
    if recipe == "cpu-again":
        from gnnperf.record.cpu_again import cpu_again

        return cpu_again()
    if recipe == "cpu-unseen":
        from gnnperf.record.cpu_unseen import cpu_unseen

        return cpu_unseen()
    if recipe == "cpu-sharding":
        from gnnperf.record.cpu_sharding import cpu_sharding

        return cpu_sharding()
    if recipe == "cpu-random":
        from gnnperf.record.cpu_random import cpu_random

        return cpu_random()
    from gnnperf.record.cpu_gloo import cpu_gloo

    return cpu_gloo()
