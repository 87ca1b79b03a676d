"""A network that never saw a program, or a machine, trained on with a few runs of it: what they are worth.

    python -m research.benchmarks.fine_tuning [--of dlrm .. machine] [--runs 2 4 8] [--seeds 0 1] [--out DIR]
    [--print-only]

Of every program: the row `gnn` of `learned`, trained on all other programs (seed 0). Up to 16 of its runs are judged;
of 2, 4 or 8 others, drawn by seed, a quarter (at least one) validates and the rest trains (rows that validate nothing
take all of them). Recordings of a run stay together. moe and rl have 13 runs: 5 are judged, and 8 others are all.

Of the second machine: the row `gnn` of `run`, trained on the first one. What `run` tests on is judged as the second
machine recorded it; the few are of what `run` validates on, recorded there, too.

Next to it the same network without those runs, the analytical model with the constants of what it was trained on and
with those of the few, a network from nothing but the few runs, trivial answers from them, and the noise: one recording
predicts another of its run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from gnnperf.core import InputError
from gnnperf.gnn import TrainConfig
from gnnperf.gnn.data.content import content_digest
from gnnperf.gnn.data.prepare import DataConfig, PreparedData, prepare
from gnnperf.gnn.data.recordings import read_recordings
from gnnperf.gnn.data.runs import read_runs, run_of
from gnnperf.gnn.data.splits import Split
from gnnperf.gnn.finetune import Start, start_of
from gnnperf.predict import EntryConfig, composed
from research.baselines.judge import Learner
from research.baselines.network import Network
from research.baselines.table import Place, SplitData, ensure_floor, ensure_record, load_split
from research.baselines.trivial import Analytic, NearestNodes
from research.baselines.whole_steps import MedianStep, NearestStep
from research.benchmarks._frame import run_main
from research.benchmarks._learned_jobs import AGAIN, GNN, data_config, dataset
from research.benchmarks._networks import AsItIs, FineTuned
from research.evaluation.records import EvaluationRecord, read_records
from research.evaluation.row_errors import REPEAT, node_figures, rows_of, step_figures

MACHINE = "machine"  # a second one, in place of a program
ROWS = ("analytic", "gnn", "analytic-few", "nearest-run-few", "median-step-few", "nearest-step-few", "gnn-few",
        "fine-tuned", REPEAT)  # fmt: skip


def print_tables(records: Sequence[EvaluationRecord]) -> None:
    """Nodes, then steps; the last lines of each are means over the programs."""
    result = rows_of(records)
    for split, rows in result.items():
        _check_same(split, [record for row, seeds in rows.items() if row != REPEAT for record in seeds])
    for of, name in ((_nodes, "node latencies, GMAE in %"), (_steps, "step time, geomean of the error in %")):
        table = Table(title=name)
        for title in ("program", "runs", "judged", "seeds", *ROWS):
            table.add_column(title, justify="left" if title == "program" else "right")
        figures = {split: [of(rows.get(row, ())) for row in ROWS] for split, rows in result.items()}
        for split in sorted(figures, key=_key):
            program, runs = _key(split)
            seeds = max(map(len, result[split].values()))
            table.add_row(program, str(runs), _num_judged(result[split]), str(seeds), *map(_percent, figures[split]))
        programs = [split for split in figures if _key(split)[0] != MACHINE]
        for runs, splits in groupby(sorted(programs, key=lambda s: _key(s)[::-1]), key=lambda s: _key(s)[1]):
            means = np.mean([figures[split] for split in splits], axis=0)
            table.add_row("mean", str(runs), "", "", *map(_percent, means))
        Console(width=190).print(table)


def _check_same(split: str, records: Sequence[EvaluationRecord]) -> None:
    """Rows of one split are of the same recordings."""
    if len({tuple(record.steps["recording"]) for record in records}) > 1:
        raise InputError("rows were judged on different recordings", where=split, remedy="delete its folder")


def _num_judged(rows: Mapping[str, Sequence[EvaluationRecord]]) -> str:
    """Number of recordings."""
    return str(max(len(record.steps) for row, seeds in rows.items() if row != REPEAT for record in seeds))


def _key(split: str) -> tuple[str, int]:
    """<program>-<runs>."""
    program, _, runs = split.rpartition("-")
    return program, int(runs)


def _nodes(records: Sequence[EvaluationRecord]) -> float:
    figures = node_figures(records) if records else None
    return float("nan") if figures is None else figures.gmae


def _steps(records: Sequence[EvaluationRecord]) -> float:
    return step_figures(records).gmae if records else float("nan")


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{100 * value:.1f}"


OUT = Path("outputs/fine_tuning")
AXES = {"dlrm": "workload-dlrm", "transformer": "workload-transformer", "cnn": "workload", "moe": "workload-moe",
        "rl": "workload-rl", "random_graph": "workload-random_graph"}  # fmt: skip
RUNS, JUDGED, SEEDS = (2, 4, 8), 16, (0, 1)


def main(arguments: Sequence[str]) -> None:
    """Make what is missing, print."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.fine_tuning")
    parser.add_argument("--of", nargs="+", choices=[*AXES, MACHINE], default=[*AXES, MACHINE], help="default: all")
    parser.add_argument("--runs", nargs="+", type=int, default=list(RUNS), choices=RUNS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    parser.add_argument("--print-only", action="store_true", help="tables of the existing records")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)  # kept networks go by sums that depend on it
    for name in () if args.print_only else args.of:
        _make(_machine() if name == MACHINE else _program(name), args)
    print_tables(read_records(args.out, "test"))


@dataclass(frozen=True)
class Unseen:
    """What the network never saw."""

    name: str
    axis: str
    whole: PreparedData
    config: DataConfig
    pool: tuple[str, ...]
    judged: tuple[str, ...]


def _program(name: str) -> Unseen:
    """A program that its axis leaves out."""
    whole = load_split(data_config(AXES[name])).data
    return Unseen(name, AXES[name], whole, data_config(AXES[name]), *apart(whole.split.test))


def _machine() -> Unseen:
    """The second machine. It has no op tables: those of the first teach what goes on from its base, the few nothing."""
    whole = load_split(data_config(AGAIN)).data
    folder = dataset("cpu-again")
    known = {run_of(name) for name in whole.split.val}
    result = [one.name for run, repeats in read_recordings(folder).items() if run in known for one in repeats.values()]
    return Unseen(MACHINE, AGAIN, whole, DataConfig(path=str(folder)), tuple(result), whole.split.test)


def _make(new: Unseen, args: argparse.Namespace) -> None:
    """The records that are missing."""
    start = start_of(GNN.checkpoint(new.whole, 0), f"the row gnn of {new.axis}")
    for seed in args.seeds:
        for count in args.runs:
            split = few_runs(new.pool, new.judged, count, seed, f"{new.name}-{count}")
            for row, (learner, data) in _rows(new, start, split).items():
                made = ensure_record(Place(args.out, row, seed), learner, SplitData(data, 1.0))
                print(f"{split.axis}/{row}/{seed}: {'made' if made else 'is there'}", file=sys.stderr, flush=True)
            ensure_floor(Place(args.out, REPEAT, seed), SplitData(_judged(new.whole, split), 1.0))


def apart(test: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Recordings to draw few runs from, and those of JUDGED other runs, the same for every seed."""
    runs = np.random.default_rng(0).permutation(list(dict.fromkeys(map(run_of, test))))
    judged = slice(max(RUNS), max(RUNS) + JUDGED)
    return _recordings(test, np.delete(runs, judged).tolist()), _recordings(test, runs[judged].tolist())


def few_runs(pool: Sequence[str], judged: tuple[str, ...], count: int, seed: int, name: str) -> Split:
    """So many runs of the pool to learn from, drawn by seed; those of a larger count hold those of a smaller one."""
    runs = np.random.default_rng(seed).permutation(list(dict.fromkeys(map(run_of, pool)))).tolist()
    validate = max(count // 4, 1)
    return Split(name, _recordings(pool, runs[validate:count]), _recordings(pool, runs[:validate]), judged)


def _recordings(of: Sequence[str], runs: Sequence[str]) -> tuple[str, ...]:
    """Those of these runs, run by run."""
    return tuple(one for run in runs for one in of if run_of(one) == run)


def _rows(new: Unseen, start: Start, split: Split) -> dict[str, tuple[Learner, PreparedData]]:
    """Row -> learner and what it is fitted and judged on."""
    config = new.config
    read = read_runs(Path(config.path), Path(config.cache_dir).expanduser(), None, None)
    isolated, further = prepare(config, split, read), prepare(config, split, read, start.earlier)
    every = prepare(config, replace(split, train=(*split.val, *split.train)), read)
    known = _judged(new.whole, split)
    return {
        "analytic": (Analytic(), known), "gnn": (AsItIs(start, start.sha256), known),
        "analytic-few": (Analytic(), every), "nearest-run-few": (NearestNodes(), every),
        "median-step-few": (MedianStep(), every), "nearest-step-few": (NearestStep(), every),
        "gnn-few": (Network(_settings("gnn")), isolated),
        "fine-tuned": (FineTuned(_settings("fine_tune"), start, start.sha256), further),
    }  # fmt: skip


def _judged(whole: PreparedData, split: Split) -> PreparedData:
    """As the training that lacks them prepared it, to be judged on the same runs."""
    by_name = {step.run: step for step in whole.steps["test"]}
    test = tuple(by_name[name] for name in split.test)
    given = content_digest(whole.fingerprint, split.test)
    return replace(whole, split=split, steps={**whole.steps, "test": test}, fingerprint=given)


def _settings(experiment: str) -> TrainConfig:
    """As train.py would take them; a network from nothing has as many updates as one that goes on."""
    words = ("init_from=a checkpoint at hand", "trainer.progress_bar=false")
    further: TrainConfig = composed("train", EntryConfig, "experiment=fine_tune", *words)
    if experiment == "fine_tune":
        return further
    own: TrainConfig = composed("train", EntryConfig, f"experiment={experiment}", words[1])
    return replace(own, trainer=further.trainer, data=further.data)


if __name__ == "__main__":
    run_main(main)
