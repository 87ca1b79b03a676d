"""`gnnperf improvement DIR --of gnn --over analytic`."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gnnperf.core import InputError, Subparsers, say

DESCRIPTION = """\
How often one row of the comparison beats another (Bouthillier et al. 2021): the share of pairs of seeds and bootstraps
of the held-out runs in which its error is smaller, with a 95 % interval over runs (or programs) and seeds.

DIR holds cells, as `python -m research.benchmarks.learned --out DIR` writes them. "significant and meaningful":
the interval lies above 0.5 and the share is 0.75 or more; "lost beyond noise": the interval lies below 0.5.
"""
EXAMPLES = """\
gnnperf improvement outputs/learned/test --of gnn --over mlp trees
gnnperf improvement outputs/learned/test --of gnn --split workload --json gnn.json
"""


def add_parsers(subparsers: Subparsers) -> None:
    from research.evaluation.cli import add_command_with_json

    short = "how often one learner beats another, beyond chance"
    parser = add_command_with_json(subparsers, "improvement", short, DESCRIPTION, EXAMPLES, _improvement)
    parser.add_argument("folder", type=Path, metavar="DIR", help="cells: <split>/<row>/<seed>.parquet")
    parser.add_argument("--of", required=True, metavar="ROW", help="the row that should be better")
    parser.add_argument("--over", nargs="+", metavar="ROW", help="... than these (default: every other row)")
    parser.add_argument("--split", nargs="+", metavar="SPLIT", help="these splits only (default: all)")
    parser.add_argument("--part", choices=("test", "val"), default="test", help="what the cells were judged on")
    parser.add_argument("--programs", action="store_true", help="draw programs, whose runs err together, and not runs")


def _improvement(args: argparse.Namespace) -> Mapping[str, object]:
    from research.evaluation.cli import percent, records, show, table_of
    from research.evaluation.improvement import GAMMA, Verdict, comparisons
    from research.evaluation.records import read_records, same_question
    from research.evaluation.row_errors import REPEAT, rows_of

    made = read_records(args.folder, args.part)
    splits = _chosen(args.split, sorted({c.origin.split for c in made}), "--split")
    retained = [c for c in made if c.origin.split in splits and c.origin.row != REPEAT]
    same_question(retained)
    if args.programs:
        retained = [replace(c, steps=c.steps.assign(run=c.steps["workload"])) for c in retained]
    rows = sorted({c.origin.row for c in retained})
    _chosen([args.of], rows, "--of")
    others = _chosen(args.over, [r for r in rows if r != args.of], "--over")
    result = comparisons(rows_of(retained), args.of, others)
    if not len(result):
        raise InputError(f"no split has cells of {args.of!r} and of another row", where=str(args.folder),
                         remedy="python -m research.benchmarks.learned --rows makes them")  # fmt: skip
    table = table_of(f"how often {args.of} is better", ("over", "metric", "split", "runs", "seeds",
                     f"error of {args.of}", "error over", "P", "95 %", "verdict"))  # fmt: skip
    for row in result.sort_values(["over", "metric"], kind="stable").to_dict("records"):
        interval = "-" if row["low"] != row["low"] else f"{row['low']:.2f} - {row['high']:.2f}"
        seeds = f"{row['seeds']} / {row['seeds_over']}"
        table.add_row(row["over"], row["metric"], row["split"], str(row["runs"]), seeds, percent(row["error"]),
                      percent(row["error_over"]), f"{row['probability']:.2f}", interval,
                      row["verdict"])  # fmt: skip
    show(table)
    for (other, metric), part in result.groupby(["over", "metric"]):
        lost = ", ".join(part["split"][part["verdict"] == Verdict.LOST]) or "none"
        won = int((part["probability"] >= GAMMA).sum())
        say(f"over {other}, {metric}: P >= {GAMMA:g} on {won} of {len(part)} splits; lost: {lost}")
    return {"of": args.of, "comparisons": records(result)}


def _chosen(requested: Sequence[str] | None, allowed: Sequence[str], option: str) -> list[str]:
    for name in requested or ():
        if name not in allowed:
            raise InputError(f"no {name!r}", where=option, allowed=", ".join(allowed) or "nothing is there")
    return list(allowed if requested is None else requested)
