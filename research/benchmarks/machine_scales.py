"""How far the pace of another machine goes: runs that both data sets recorded, each given by the paces of the others.

    python -m research.benchmarks.machine_scales [--split workload+cpu-random] [--bucket-bytes 70000]

Of every shared run: the other machine's nodes and step as it took them, and in the pace that the remaining shared runs
tell, against what ours recorded. Then the paces of all of them, and which recordings have no known one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.core import InputError
from gnnperf.gnn.data.machine_scales import in_own_scale, machine_scales_of, paced, shared
from gnnperf.gnn.data.prepare import opened
from gnnperf.gnn.data.runs import RunStep, typical
from gnnperf.gnn.data.splits import prefix_of
from gnnperf.gnn.evaluation.metrics import gmae, is_measured
from gnnperf.schedule import align
from research.benchmarks._learned_jobs import data_config

Pair = tuple[RunStep, RunStep]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.machine_scales", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument(
        "--split", default="workload+cpu-random", help="AXIS+NAME, as research.benchmarks.learned takes it"
    )
    parser.add_argument("--bucket-bytes", type=float, default=70_000, metavar="BYTES")
    args = parser.parse_args(arguments)
    try:
        config = data_config(args.split, bucket_bytes=args.bucket_bytes)
        split, read = opened(config)
        if not config.train_paths:
            raise InputError("names no other data set", where=f"--split {args.split}", allowed="AXIS+NAME")
        runs = [typical(read(name)) for name in split.train]
        for prefix in (prefix_of(Path(path)) for path in config.train_paths):
            _print(prefix, runs)
    except InputError as error:
        print(f"paces: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _print(prefix: str, runs: Sequence[RunStep]) -> None:
    """Of one data set."""
    theirs = [run for run in runs if run.run.startswith(prefix)]
    pairs, new = shared(theirs, prefix, [run for run in runs if run not in theirs])
    given = [errors_of(pair, [other for other in pairs if other is not pair]) for pair in pairs]
    errors = [result for result in given if result is not None]
    _print_errors(prefix, errors)
    retained, machine_scales = in_own_scale(runs, [prefix])
    print(f"{prefix}: {machine_scales[prefix]}")
    for (kind, *family), ratio in sorted(machine_scales[prefix].of_kind.items()):
        print(f"  {' '.join((kind, *family))}: {ratio:.2f}")
    names = {run.run for run in retained}
    out = Counter("bfloat16" if "bfloat16" in set(run.graph.nodes["dtype"]) else "other dtypes" for run in new
                  if run.run not in names)  # fmt: skip
    print(f"  kept {sum(run.run in names for run in new)} of {len(new)} recordings; left out: {dict(out)}")


def errors_of(pair: Pair, others: Sequence[Pair]) -> np.ndarray | None:
    """[2, 2]: as it was taken and in the pace of the others x (GMAE of nodes, |log ratio| of the step).

    None where the others do not know its pace.
    """
    there, here = pair
    given = paced(there, machine_scales_of(others))
    if given is None:
        return None
    matched = align(here.graph, there.graph)  # [num_nodes of here]
    measured_us = here.graph.nodes["latency_us"].to_numpy(np.float64)
    answers_us = [np.where(matched >= 0, run.graph.nodes["latency_us"].to_numpy(np.float64)[matched], np.nan)
                  for run in (there, given)]  # fmt: skip
    both = np.logical_and.reduce([is_measured(us) for us in (measured_us, *answers_us)])  # [num_nodes of here]
    nodes = [gmae(us[both], measured_us[both]) for us in answers_us]
    return np.array(list(zip(nodes, [abs(np.log(run.step_us / here.step_us)) for run in (there, given)], strict=True)))


def _print_errors(prefix: str, errors: Sequence[np.ndarray]) -> None:
    title = f"{prefix}: {len(errors)} shared runs, each in the pace of the others, in %"
    table = Table(title=title, title_justify="left")
    for column in ("", "nodes: GMAE, mean over runs", "steps: |log|, mean", "median"):
        table.add_column(column, justify="right")
    result = 100 * np.array(errors).reshape(-1, 2, 2)  # [num_runs, how, what]
    for how, name in enumerate(("as it took them", "in our pace")):
        steps = result[:, how, 1]  # [num_runs]
        table.add_row(name, f"{result[:, how, 0].mean():.1f}", f"{steps.mean():.1f}", f"{np.median(steps):.1f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    sys.exit(main())
