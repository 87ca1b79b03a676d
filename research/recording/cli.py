"""The recipes of `gnnperf record --recipe NAME`: entry points of the group `gnnperf.recipes` (research/pyproject.toml).

A recipe gets the parsed options `out`, `raw`, `resume` and `minutes`, and returns the exit code.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

from gnnperf.core import InputError, say, task
from gnnperf.record.launcher import RankFailed
from research.recording import cpu_gloo as gloo
from research.recording.build import build
from research.recording.dataset import calibrate_first, record_all
from research.recording.gpu_recipe import gpu as gpu_plan
from research.recording.gpu_recipe import gpu_programs as gpu_programs_plan
from research.recording.plan import Plan
from research.recording.program_recipe import cpu_programs as programs_plan
from research.recording.run import RunSpec, Steps, record_run
from research.recording.workloads.dlrm import Dlrm


def demo(arguments: argparse.Namespace) -> int:
    """Record one small run of two ranks into `out`."""
    spec = RunSpec(Dlrm())
    try:
        with task("recording", 1, "runs"):  # its steps are counted in other processes
            record_run(arguments.out, spec, Steps())
    except RankFailed as failure:
        say(f"gnnperf: {arguments.out}: {failure}; the run is marked broken")
        return 1
    say(f"{arguments.out}: {spec.name}, complete")
    return 0


def record_dataset(plan_of: Callable[[], Plan], arguments: argparse.Namespace) -> int:
    """Calibrate if the plan states so, record what is missing, and build the data set of whatever there is.

    Returns:
        0 if all recordings were accepted, else 1.
    """
    if arguments.raw is None:
        raise InputError("--raw is missing", where="gnnperf record", remedy="name the folder for the raw traces")
    plan, began_s = plan_of(), time.monotonic()
    calibrate_first(arguments.raw, plan.calibrate_minutes, say)
    left_s = 60 * arguments.minutes - (time.monotonic() - began_s)
    outcomes = record_all(plan, arguments.raw, say, built=arguments.out, resume=arguments.resume, budget_s=left_s)
    left = [outcome for outcome in outcomes if not outcome.accepted]
    built = build(plan, arguments.raw, arguments.out)  # of whatever there is: a prefix is a data set, too
    say(f"{arguments.out}: {built.recordings} recordings of {len(plan.runs)} runs, {built.size_bytes / 1e6:.2f} MB")
    if left:
        say(f"gnnperf: {len(left)} of {len(outcomes)} recordings were not accepted; --resume tries them again")
    return 1 if left else 0


cpu_gloo = partial(record_dataset, gloo.cpu_gloo)
cpu_again = partial(record_dataset, gloo.cpu_again)
cpu_lengths = partial(record_dataset, gloo.cpu_lengths)
cpu_programs = partial(record_dataset, programs_plan)
gpu = partial(record_dataset, gpu_plan)
gpu_programs = partial(record_dataset, gpu_programs_plan)
