"""`gnnperf interventions DATASET` and `gnnperf noise-floor DATASET`."""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnperf.core import InputError, Subparsers, add_command, console, say, to_json, untrusted, write_bytes, write_out

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from research.evaluation.interventions import LeftOut, Trial

INTERVENTIONS = """\
Pairs of recorded runs, B = A with one known change: the graph of A plus that change, against measured B.

The error is that of the CHANGE: |predicted - measured| / |measured|. Every pair is tried in both directions and from
each repeat; the measurement comes from the other repeats.
"""
INTERVENTIONS_EXAMPLES = """\
gnnperf interventions datasets/cpu-gloo
gnnperf interventions datasets/cpu-gloo --cache ~/.cache/gnnperf --json changes.json
"""
FLOOR = """\
How far apart two recordings of one run are: the error of predicting one by the other. No model can be shown to be
better.
"""
FLOOR_EXAMPLES = """\
gnnperf noise-floor datasets/cpu-gloo
gnnperf noise-floor datasets/cpu-gloo --json       for a program to read
"""
STDOUT = Path("-")
Command = Callable[[argparse.Namespace], Mapping[str, object]]  # prints tables, returns them for JSON


def add_parsers(subparsers: Subparsers) -> None:
    for name, run, text, about, examples in (
        ("interventions", _interventions, "known changes: predicted from A's graph, measured in B", INTERVENTIONS,
         INTERVENTIONS_EXAMPLES),
        ("noise-floor", _noise_floor, "the error of predicting one recording by another of the same run", FLOOR,
         FLOOR_EXAMPLES),
    ):  # fmt: skip
        parser = add_command_with_json(subparsers, name, text, about, examples, run)
        parser.add_argument("dataset", type=Path, help="folder with <run>/<repeat>/, as `gnnperf record` writes it")
        parser.add_argument("--cache", type=Path, metavar="DIR", help="keep graphs here (default: build them anew)")


def add_command_with_json(
    subparsers: Subparsers, name: str, short: str, about: str, examples: str, run: Command
) -> argparse.ArgumentParser:
    """Add a command whose result `--json FILE` keeps, and `--json` prints; its tables go to standard error then."""

    def printed(args: argparse.Namespace) -> None:
        if args.json == STDOUT:
            with redirect_stdout(sys.stderr):
                document = run(args)
            write_out(to_json(document, indent=1))
        else:
            write_json(args.json, run(args))

    parser = add_command(subparsers, name, short, about, examples, printed, has_json=False)
    parser.add_argument("--json", type=Path, nargs="?", const=STDOUT, metavar="FILE",
                        help="write everything as JSON, too; without FILE, print that only")  # fmt: skip
    return parser


def _interventions(args: argparse.Namespace) -> Mapping[str, object]:
    from gnnperf.gnn.data.recordings import read_recordings
    from research.evaluation.interventions import evaluate_pairs, summarize_trials, table_of_trials
    from research.evaluation.loading import as_recorded, machine_costs, without_profiler_cost
    from research.evaluation.pairs import read_pairs

    _require_folder(args.dataset)
    pairs, recordings = read_pairs(args.dataset), read_recordings(args.dataset)
    every = [recording for repeats in recordings.values() for recording in repeats.values()]
    costs = machine_costs(every)
    trials, left_out = evaluate_pairs(pairs, recordings, load=without_profiler_cost(as_recorded(args.cache), costs))
    if not trials:
        reasons = "; ".join(sorted({o.reason for o in left_out})[:3])
        raise InputError(f"none of {len(pairs)} pairs can be tried: {reasons}", where=str(args.dataset))
    _print_interventions(summarize_trials(trials), trials, left_out)
    known = sum(recording.machine in costs for recording in every)
    say(f"profiler's cost taken out of {known} of {len(every)} recordings (as measured on their machines)")
    return {
        "summary": records(summarize_trials(trials)), "trials": records(table_of_trials(trials)),
        "left_out": [{"a": o.pair.a, "b": o.pair.b, "kind": str(o.pair.change), "reason": o.reason} for o in left_out],
    }  # fmt: skip


def _noise_floor(args: argparse.Namespace) -> Mapping[str, object]:
    from gnnperf.gnn.data.recordings import read_recordings
    from research.evaluation.loading import as_recorded
    from research.evaluation.noise_floor import ACROSS, floor_tables, node_summary, step_summary

    _require_folder(args.dataset)
    recordings = read_recordings(args.dataset)
    steps, nodes = floor_tables(recordings, as_recorded(args.cache))
    if not len(steps):
        raise InputError("no run was recorded twice", where=str(args.dataset), remedy="record every run twice")
    summary = {"steps": step_summary(steps), "nodes": node_summary(nodes)}
    for title, table in summary.items():
        _print_floor(f"noise floor of {title}", table)
    if not (steps["machines"] == ACROSS).any():
        say("Across machines: unknown, every run was recorded on one machine only.")
    return {**{k: records(t) for k, t in summary.items()}, "step_pairs": records(steps), "node_pairs": records(nodes)}


def _require_folder(path: Path) -> None:
    if not path.is_dir():
        raise InputError("is no folder", where=str(path), allowed="a data set: a folder with <run>/<repeat>/run.json")


def _print_interventions(rows: "pd.DataFrame", trials: Sequence["Trial"], left_out: Sequence["LeftOut"]) -> None:
    columns = {
        "change": "kind", "pairs": "pairs", "trials": "trials", "error of the change": "error_median", "95 %": "",
        "p90": "error_p90", "above noise": "above_noise", "their error": "error_median_above_noise",
        "sign right": "sign_right", "true change": "perfect_error_above_noise", "summed": "summed_error_median",
        "measured again": "remeasured_error_median",
    }  # fmt: skip
    table = table_of("known changes: predicted from A's graph, measured in B", tuple(columns))
    for row in rows.to_dict("records"):
        given = {**row, "": _range(row["error_low"], row["error_high"])}
        table.add_row(*(percent(given[c]) if isinstance(given[c], float) else str(given[c]) for c in columns.values()))
    show(table)
    sentences = Counter(re.sub(r"-?\d[\d.]*", "…", sentence) for trial in trials for sentence in set(trial.unknown))
    for sentence, count in sentences.most_common():
        say(f"unknown to {count} of {len(trials)} predictions: {sentence}")
    for out in left_out:
        say(f"left out: {out.pair.change} {out.pair.a} -> {out.pair.b}: {out.reason}")


def _print_floor(title: str, summary: "pd.DataFrame") -> None:
    table = table_of(title, ("machines", "group", "metric", "runs", "median", "95 %", "p90", "max"))
    for row in summary.to_dict("records"):
        interval = _range(row["low"], row["high"])
        table.add_row(str(row["machines"]), str(row["group"]), str(row["metric"]), str(row["runs"]),
                      percent(row["median"]), interval, percent(row["p90"]), percent(row["max"]))  # fmt: skip
    show(table)


def table_of(title: str, columns: Sequence[str]) -> "Table":
    """An empty table; all columns but the first to the right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    return table


def show(table: "Table") -> None:
    """Print it, wide where the output is a file."""
    console(width=None if sys.stdout.isatty() else 160).print(table)


def percent(value: float) -> str:
    """With one decimal; NaN is a dash."""
    return "-" if value != value else f"{value:.1%}"


def _range(low: float, high: float) -> str:
    return "-" if low != low else f"{percent(low)} - {percent(high)}"


def records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Rows as JSON values: NaN becomes null."""
    return [{str(k): None if v != v else v for k, v in row.items()} for row in table.to_dict("records")]


def write_json(path: Path | None, content: Mapping[str, object]) -> None:
    if path is None:
        return
    with untrusted.reading(path, "cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, to_json(content, indent=1))
