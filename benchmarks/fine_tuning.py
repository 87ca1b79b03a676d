"""A network that never saw a program, trained on with a few runs of it: what they are worth.

    python -m benchmarks.fine_tuning [--programs dlrm ..] [--runs 2 4 8] [--seeds 0 1] [--out DIR] [--print-only]

Of every program: the row `gnn` of `learned`, trained on all other programs (seed 0). Up to 16 of its runs are judged;
of 2, 4 or 8 others, drawn by seed, a quarter (at least one) validates and the rest trains (rows that validate nothing
take all of them). Recordings of a run stay together. moe and rl have 13 runs: 5 are judged, and 8 others are all.

Beside it the same network without those runs, the analytical model with the constants of the other programs and with
those of the few, a network from nothing but the few runs, trivial answers from them, and the noise: one recording says
another of its run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks._few_runs_table import print_tables
from benchmarks._fine_tuned import AsItIs, FineTuned
from benchmarks._learned_jobs import data_config
from benchmarks._learned_rows import GNN
from gnnperf.baselines.answer import Learner
from gnnperf.baselines.network import Network
from gnnperf.baselines.table import Place, SplitData, ensure_cell, ensure_floor, load_split
from gnnperf.baselines.trivial import Analytic, NearestNodes
from gnnperf.baselines.whole_steps import MedianStep, NearestStep
from gnnperf.config import composed
from gnnperf.data.content import content_digest
from gnnperf.data.prepare import PreparedData, prepare
from gnnperf.data.runs import read_runs, run_of
from gnnperf.data.splits import Split
from gnnperf.errors import InputError
from gnnperf.evaluate.cell_files import read_cells
from gnnperf.evaluate.improvement_cli import REPEAT
from gnnperf.finetune import Start, start_of
from gnnperf.pretrain.config import EntryConfig
from gnnperf.training.config import TrainConfig

OUT = Path("outputs/fine_tuning")
AXES = {"dlrm": "workload-dlrm", "transformer": "workload-transformer", "cnn": "workload", "moe": "workload-moe",
        "rl": "workload-rl", "random_graph": "workload-random_graph"}  # fmt: skip
RUNS, JUDGED, SEEDS = (2, 4, 8), 16, (0, 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing, print; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fine_tuning")
    parser.add_argument("--programs", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--runs", nargs="+", type=int, default=list(RUNS), choices=RUNS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    parser.add_argument("--print-only", action="store_true", help="tables of the cells that are there")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)  # kept networks go by sums that depend on it
    try:
        for program in () if args.print_only else args.programs:
            _make(program, args)
    except InputError as error:
        print(f"fine_tuning: {error}", file=sys.stderr)
        return error.exit_code
    print_tables(read_cells(args.out, "test"))
    return 0


def _make(program: str, args: argparse.Namespace) -> None:
    """The cells of a program that are missing."""
    whole = load_split(data_config(AXES[program])).data
    start = start_of(GNN.checkpoint(whole, 0), f"the row gnn of {AXES[program]}")
    for seed in args.seeds:
        for count in args.runs:
            split = few_runs(whole.split, count, seed, f"{program}-{count}")
            for row, (learner, data) in _rows(whole, start, split).items():
                made = ensure_cell(Place(args.out, row, seed), learner, SplitData(data, 1.0))
                print(f"{split.axis}/{row}/{seed}: {'made' if made else 'is there'}", file=sys.stderr, flush=True)
            ensure_floor(Place(args.out, REPEAT, seed), SplitData(_judged(whole, split), 1.0))


def few_runs(split: Split, count: int, seed: int, name: str) -> Split:
    """Of the runs that are left out: so many to learn from, others to judge on; drawn by seed.

    Args:
        split: whose test part they are.
        count: to learn from; those of a larger count hold those of a smaller one.
        seed: which of them; those that judge are the same.
        name: of the new split.
    """
    runs = np.random.default_rng(0).permutation(list(dict.fromkeys(map(run_of, split.test))))
    judged = runs[max(RUNS) : max(RUNS) + JUDGED]  # the same for every seed
    pool = np.random.default_rng(seed).permutation(runs[~np.isin(runs, judged)])
    validate = max(count // 4, 1)
    parts = (pool[validate:count], pool[:validate], judged)
    return Split(name, *(tuple(one for run in part for one in split.test if run_of(one) == run) for part in parts))


def _rows(whole: PreparedData, start: Start, split: Split) -> dict[str, tuple[Learner, PreparedData]]:
    """Row -> learner and what it is fitted and judged on."""
    config = data_config(split.axis)
    read = read_runs(Path(config.path), Path(config.cache_dir).expanduser(), None, None)
    alone, further = prepare(config, split, read), prepare(config, split, read, start.earlier)
    every = prepare(config, replace(split, train=(*split.val, *split.train)), read)
    known = _judged(whole, split)
    return {
        "analytic": (Analytic(), known), "gnn": (AsItIs(start, start.sha256), known),
        "analytic-few": (Analytic(), every), "nearest-run-few": (NearestNodes(), every),
        "median-step-few": (MedianStep(), every), "nearest-step-few": (NearestStep(), every),
        "gnn-few": (Network(_settings("gnn")), alone),
        "fine-tuned": (FineTuned(_settings("fine_tune"), start, start.sha256), further),
    }  # fmt: skip


def _judged(whole: PreparedData, split: Split) -> PreparedData:
    """As the other programs' training prepared it, to be judged on the same runs."""
    by_name = {step.run: step for step in whole.steps["test"]}
    test = tuple(by_name[name] for name in split.test)
    told = content_digest(whole.fingerprint, split.test)
    return replace(whole, split=split, steps={**whole.steps, "test": test}, fingerprint=told)


def _settings(experiment: str) -> TrainConfig:
    """As train.py would take them; a network from nothing has as many updates as one that goes on."""
    words = ("init_from=a checkpoint at hand", "trainer.progress_bar=false")
    further: TrainConfig = composed("train", EntryConfig, "experiment=fine_tune", *words)
    if experiment == "fine_tune":
        return further
    own: TrainConfig = composed("train", EntryConfig, f"experiment={experiment}", words[1])
    return replace(own, trainer=further.trainer, data=further.data)


if __name__ == "__main__":
    sys.exit(main())
