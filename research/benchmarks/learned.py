"""The learned predictor next to every simpler learner, record by record: a killed table goes on where it was.

    python -m research.benchmarks.learned [--rows gnn mlp ..] [--splits size ..] [--seeds 0 1 ..] [--out DIR]
    [--processes 2]
    python -m research.benchmarks.learned --print-only     tables of the existing records
    python -m research.benchmarks.learned --part val  judged on the validation runs, without a look at the test runs

A record (DIR/<split>/<row>/<seed>.parquet) is one fit. It is made if it is missing, or of other data or another
configuration; a changed program is given, not noticed: delete the folders of its rows. Splits by default: six of
cpu-gloo. SPLIT+NAME also trains on datasets/NAME, programs that are tested on left out: `--splits workload+cpu-unseen`.
F, the row another-recording: one recording predicts another of the same run.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gnnperf.cli import INTERRUPTED
from research.benchmarks._frame import parser_of, run_main
from research.benchmarks._learned_jobs import AFTER_OTHERS, FIXED, LEARNED, Job, jobs_of, make, save_network
from research.evaluation.records import read_records
from research.evaluation.row_errors import print_tables

SPLITS = ("size", "workload", "link", "world_size", "parallelism", "run")
SEEDS = (0, 1, 2, 3, 4)
OUT = Path("outputs/learned")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing, print; 1 if a record could not be made."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", nargs="+", choices=[*FIXED, *LEARNED], help="default: all")
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), help="as _learned_jobs.data_config takes them")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--part", choices=("test", "val"), default="test")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"default: {OUT}/<part>")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--print-only", action="store_true")
    args = parser.parse_args(arguments)
    out = args.out or OUT / args.part
    try:
        failed = [] if args.print_only else make(_jobs(args, out), args.processes)
        records = read_records(out, args.part)
        print_tables(records, args.splits)
        if args.part == "test":
            save_network("learned_size", records, "size", steps=False)
            save_network("learned_workload", records, "workload")
            save_network("learned_more", records, "workload+cpu-unseen")
    except KeyboardInterrupt:
        print("learned: interrupted; existing records stay", file=sys.stderr)
        return INTERRUPTED
    for job, reason in failed:
        print(f"failed: {job}: {reason}", file=sys.stderr)
    return 1 if failed else 0


def _jobs(args: argparse.Namespace, out: Path) -> list[Job]:
    """In order of splits, so that a process seldom loads one twice; what is quick comes first.

    Rows that need another row's network come last, at the price of loading splits once more: next to it they would
    only wait for it.
    """
    rows = args.rows or [*FIXED, *LEARNED]
    result: list[Job] = []
    for split in args.splits:
        result += jobs_of(out, split, rows, args.seeds, args.part)
    return sorted(result, key=lambda job: job.learner in AFTER_OTHERS)


if __name__ == "__main__":
    run_main(main)
