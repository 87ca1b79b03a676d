"""`gnnperf improvement DIR --of gnn --over analytic`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnnperf.core import InputError, say

if TYPE_CHECKING:
    from research.evaluation.records import EvaluationRecord
    from research.evaluation.row_errors import Rows

DESCRIPTION = """\
How often one row of the comparison beats another (Bouthillier et al. 2021): the share of pairs of seeds and bootstraps
of the held-out runs in which its error is smaller, with a 95 % interval over runs and seeds.

DIR holds cells, as `python -m research.benchmarks.learned --out DIR` writes them. "significant and meaningful":
the interval
lies above 0.5 and the share is 0.75 or more; "lost beyond noise": the interval lies below 0.5.
"""


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("improvement", help="how often one learner beats another, beyond chance",
                                   description=DESCRIPTION,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", type=Path, metavar="DIR", help="cells: <split>/<row>/<seed>.parquet")
    parser.add_argument("--of", required=True, metavar="ROW", help="the row that should be better")
    parser.add_argument("--over", nargs="+", metavar="ROW", help="... than these (default: every other row)")
    parser.add_argument("--split", nargs="+", metavar="SPLIT", help="these splits only (default: all)")
    parser.add_argument("--part", choices=("test", "val"), default="test", help="what the cells were judged on")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    parser.set_defaults(run=_improvement)


def _improvement(args: argparse.Namespace) -> int:
    from research.evaluation.cli import write_json
    from research.evaluation.records import read_records, same_question
    from research.evaluation.row_errors import REPEAT, rows_of

    records = read_records(args.folder, args.part)
    splits = _chosen(args.split, sorted({c.origin.split for c in records}), "--split")
    retained = [c for c in records if c.origin.split in splits and c.origin.row != REPEAT]
    same_question(retained)
    rows = sorted({c.origin.row for c in retained})
    _chosen([args.of], rows, "--of")
    others = _chosen(args.over, [r for r in rows if r != args.of], "--over")
    result = _comparisons(rows_of(retained), args.of, others)
    if not result:
        raise InputError(f"no split has cells of {args.of!r} and of another row", where=str(args.folder),
                         remedy="python -m research.benchmarks.learned --rows makes them")  # fmt: skip
    _print(result, args.of)
    if args.json is not None:
        write_json(args.json, {"of": args.of, "comparisons": result})
    return 0


def _chosen(requested: Sequence[str] | None, allowed: Sequence[str], option: str) -> list[str]:
    for name in requested or ():
        if name not in allowed:
            raise InputError(f"no {name!r}", where=option, allowed=", ".join(allowed) or "nothing is there")
    return list(allowed if requested is None else requested)


def _comparisons(
    splits: dict[str, dict[str, list[EvaluationRecord]]], of: str, others: Sequence[str]
) -> list[dict[str, object]]:
    """One record per split, other row and metric that both answer."""
    from gnnperf.core import each

    requested = [(split, other) for split, rows in splits.items() for other in others if of in rows and other in rows]
    return [record for split, other in each(requested, "resampling runs and seeds", "comparisons")
            for record in _records(split, splits[split], of, other)]  # fmt: skip


def _records(split: str, rows: Rows, of: str, other: str) -> list[dict[str, object]]:
    from research.evaluation.improvement import improvement
    from research.evaluation.run_sums import METRICS

    result: list[dict[str, object]] = []
    for metric, sums in METRICS.items():
        ours, theirs = sums(rows[of]), sums(rows[other])
        if ours is None or theirs is None:  # whole steps only
            continue
        better = improvement(ours, theirs)
        low, high = (None if value != value else value for value in (better.low, better.high))
        result.append({
            "split": split, "over": other, "metric": metric, "probability": better.probability, "low": low,
            "high": high, "verdict": str(better.verdict), "error": ours.value, "error_over": theirs.value,
            "seeds": len(ours.total), "seeds_over": len(theirs.total), "runs": better.num_runs,
        })  # fmt: skip
    return result


def _print(result: Sequence[dict[str, object]], of: str) -> None:
    from research.evaluation.cli import show, table_of

    table = table_of(f"how often {of} is better", ("over", "metric", "split", "runs", "seeds", f"error of {of}",
                                                   "error over", "P", "95 %", "verdict"))  # fmt: skip
    for r in sorted(result, key=lambda r: (str(r["over"]), str(r["metric"]))):
        table.add_row(*_cells(r))
    show(table)
    for sentence in _counts(result):
        say(sentence)


def _cells(record: Mapping[str, object]) -> list[str]:
    from research.evaluation.cli import percent

    low, high = record["low"], record["high"]
    errors = [percent(_number(record[name])) for name in ("error", "error_over")]
    interval = "-" if low is None or high is None else f"{_number(low):.2f} - {_number(high):.2f}"
    about = [str(record[name]) for name in ("over", "metric", "split", "runs")]
    seeds = f"{record['seeds']} / {record['seeds_over']}"
    return [*about, seeds, *errors, f"{_number(record['probability']):.2f}", interval, str(record["verdict"])]


def _counts(result: Sequence[dict[str, object]]) -> list[str]:
    """Per other row and metric: on how many splits P reaches the threshold, and which are lost."""
    from research.evaluation.improvement import GAMMA, Verdict

    groups: dict[tuple[str, str], list[dict[str, object]]] = {}
    for record in result:
        groups.setdefault((str(record["over"]), str(record["metric"])), []).append(record)
    sentences = []
    for (other, metric), records in sorted(groups.items()):
        won = sum(_number(r["probability"]) >= GAMMA for r in records)
        lost = ", ".join(str(r["split"]) for r in records if r["verdict"] == str(Verdict.LOST)) or "none"
        sentences.append(f"over {other}, {metric}: P >= {GAMMA:g} on {won} of {len(records)} splits; lost: {lost}")
    return sentences


def _number(value: object) -> float:
    assert isinstance(value, float)
    return value
