"""Known changes of a step, given by networks that were neither trained nor validated on either of a pair's runs.

    python -m research.benchmarks.learned_edits [--out DIR] [--pairs]

The pairs of `declared_edits`, and those of batch and dtype of `edits`. Runs that pairs connect are held out together,
in one of three folds; each fold's network (`train.py experiment=gnn`) and the constants of its analytical model come
from the other two. A's typical step is edited without a look at B. Measured is the change of the step without the
profiler, means over recordings; a change counts (is loud) where it is larger than the spread of the recordings of A and
B together. Networks stay in DIR, a training that was killed goes on: a second run only looks.

Answers: `gnn` (with ops that it does not know from the analytical model) and `analytic` by itself:
predicted minus predicted; both held to A's recording node by node; A's recording edited without any model; a trivial
rule (the sleep, bytes over the wire, the ratio of batch, tokens or element size); nothing. `measured again`: the change
in one recording of A and B against that in their others, what noise by itself makes of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError
from gnnperf.gnn import Checkpoint
from gnnperf.gnn.data.prepare import PreparedData, prepare
from gnnperf.gnn.data.recordings import Recording
from gnnperf.gnn.data.runs import RunGraph, cluster_for, read_runs, typical
from gnnperf.gnn.data.splits import Split
from gnnperf.graph import ExecutionGraph
from gnnperf.predict.gnn import GnnPredictor
from gnnperf.predict.predictors import Predictors
from gnnperf.whatif import apply
from research.benchmarks._cached_networks import cached_network
from research.benchmarks._declared_pairs import DeclaredPair, declared_pairs
from research.benchmarks._edit_answers import change_of, recorded_change_us
from research.benchmarks._edit_folds import EditFold, Run, edit_folds
from research.benchmarks._edit_pairs import shape_pairs
from research.benchmarks._edit_table import AGAIN, NOTHING, Judged, each, spread, summary
from research.benchmarks._learned_jobs import data_config
from research.benchmarks._learned_rows import experiment
from research.benchmarks._recorded_graphs import DATASET, recorded_graphs, recordings

OUT, ROW, SEED = Path("outputs/learned_edits"), "gnn", 0
TOLD = ("gnn", "gnn held", "analytic", "analytic held", "recorded", "trivial")


@dataclass(frozen=True)
class Recorded:
    """Every run of the data set.

    Attributes:
        of_run: run -> its recordings.
        graphs: run -> graph of its first recording, without the profiler's cost.
        pairs: all that are there.
    """

    of_run: Mapping[str, tuple[Recording, ...]]
    graphs: Mapping[str, ExecutionGraph]
    pairs: tuple[DeclaredPair, ...]

    def runs(self) -> dict[str, Run]:
        """What folds need to know of them."""
        return {
            run: Run(result[0].workload, graph.num_nodes / len(graph.steps), tuple(one.name for one in result))
            for run, result in self.of_run.items() for graph in [self.graphs[run]]
        }  # fmt: skip

    def steps_us(self, run: str) -> tuple[float, ...]:
        """Of its recordings, without the profiler."""
        return tuple(one.unprofiled_us for one in self.of_run[run])


def recorded() -> Recorded:
    """The embedded data set and its pairs."""
    named, graphs = recordings(), recorded_graphs()
    of_run: dict[str, list[Recording]] = {}
    for one in named.values():
        of_run.setdefault(one.run, []).append(one)
    first = {run: graphs[result[0].name] for run, result in of_run.items()}
    shapes = [DeclaredPair(p.kind, p.a, p.b, p.edits, trivial=p.trivial) for p in shape_pairs(set(first))]
    return Recorded({run: tuple(result) for run, result in of_run.items()}, first, (*declared_pairs(first), *shapes))


def network_of(fold: EditFold, out: Path) -> Checkpoint:
    """The fold's network, trained if it is not there."""
    return cached_network(out, experiment(ROW), fold.split, SEED, lambda: _prepared(fold.split))


def _prepared(split: Split) -> PreparedData:
    config = data_config(split.axis)
    return prepare(config, split, read_runs(DATASET, Path(config.cache_dir).expanduser(), None, None))


def judged(pair: DeclaredPair, result: Recorded, checkpoint: Checkpoint) -> Judged:
    """The pair, from the first recording of A."""
    graph = result.graphs[pair.a]
    cluster = cluster_for(graph, None, None)
    step = typical(RunGraph(pair.a, graph, cluster)).graph
    edited = apply(step, pair.edits)
    network, analytic = GnnPredictor(checkpoint), AnalyticPredictor(checkpoint.constants)
    learned = change_of(edited, step, Predictors((network, analytic)), cluster)
    closed = change_of(edited, step, analytic, cluster)
    a_us, b_us = result.steps_us(pair.a), result.steps_us(pair.b)
    given = (learned.isolated_us, learned.held_us, closed.isolated_us, closed.held_us,
            recorded_change_us(edited, step, np.ones(edited.graph.num_nodes)),
            pair.trivial_us + (pair.trivial - 1.0) * float(np.mean(a_us)))  # fmt: skip
    return Judged(pair.kind, pair.a, pair.b, a_us, b_us, dict(zip(TOLD, given, strict=True)))


def outcomes(result: Recorded, out: Path) -> Iterator[Judged | str]:
    """Every pair by its fold's network; a sentence where an edit has no place."""
    for fold in edit_folds(result.runs(), [(pair.a, pair.b) for pair in result.pairs]):
        checkpoint = network_of(fold, out)
        for pair in result.pairs:
            if pair.a in fold.held_out:
                try:
                    yield judged(pair, result, checkpoint)
                except InputError as error:
                    yield f"{pair.kind}: {pair.a} -> {pair.b}: {error}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, print."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.learned_edits")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"networks; default: {OUT}")
    parser.add_argument("--pairs", action="store_true", help="also a row per pair")
    args = parser.parse_args(arguments)
    every = list(outcomes(recorded(), args.out))
    result = [one for one in every if isinstance(one, Judged)]
    console, answers = Console(width=200), (*TOLD, NOTHING, AGAIN)
    if args.pairs:
        console.print(each(result, TOLD))
    console.print(summary(result, answers))
    console.print(spread(result, answers))
    for line in (one for one in every if isinstance(one, str)):
        print(f"left out: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
