"""Public runs on GPUs, one workload family left out at a time: the network next to trivial answers.

    python -m research.benchmarks.public_families [--out DIR] [--families NAME ..] [--rows NAME ..] [--print-only]

Of every family: rows are fitted on all other families but one, which validates (the next in order; it chooses the
network's best epoch and how much it may correct), and judged on the family. The labels are those of the trace: the
median period, of a single step its makespan, of a run without step marks the whole pass. Recordings of one program are
one example where they train; where they judge, each stands for itself. Steps in which a rank sleeps are listed apart.
gnn-from-ops is the network that starts from a checkpoint of op tables (`train.py experiment=pretrained`), instead of
from nothing.
host-pace and host-and-device-pace are no answers: they read off the recording how fast its machine is (_public_paces).

Cells are kept in DIR and made if they are missing or of other data, as those of `learned`; a training of the row gnn
that was killed goes on after its last whole epoch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from gnnperf.core import InputError, NodeType
from gnnperf.gnn import TrainConfig, load_start
from gnnperf.gnn.data.prepare import DataConfig, Earlier, prepare
from gnnperf.predict import composed
from research.baselines.judge import Learner
from research.baselines.network import Network
from research.baselines.table import Place, SplitData, ensure_record
from research.baselines.trivial import Analytic, Base, NearestNodes, OpConstant
from research.baselines.whole_steps import MedianStep, NearestStep
from research.benchmarks._cached_networks import CachedNetwork
from research.benchmarks._fine_tuned import FineTuned
from research.benchmarks._public_families import FAMILIES, PublicRuns, public_runs
from research.benchmarks._public_machine_scales import OwnScale
from research.benchmarks._public_tables import tables
from research.evaluation.records import read_records
from research.pretraining.op_checkpoint import TRAINED

OUT, SEED, NETWORK, FROM_OPS = Path("outputs/public_families"), 0, "gnn", "gnn-from-ops"
PACES = ((NodeType.HOST,), (NodeType.COMPUTE, NodeType.MEMORY))
EPOCHS, BATCH_SIZE = 20, 2  # some 35 programs train: small batches, so that 20 epochs are a few hundred updates


def rows(out: Path) -> dict[str, Learner]:
    """Row -> learner; what is quick comes first."""
    return {
        "analytic": Analytic(), "base": Base(), "op-constant": OpConstant(), "nearest-run": NearestNodes(),
        "median-step": MedianStep(), "nearest-step": NearestStep(),
        "host-pace": OwnScale(PACES[:1]), "host-and-device-pace": OwnScale(PACES),
        NETWORK: CachedNetwork(Network(_settings()), out / "networks"),
    }  # fmt: skip


def from_ops() -> FineTuned:
    """The network that starts from a checkpoint of op tables."""
    config = _settings()
    start = load_start(TRAINED, config.model)
    return FineTuned(config, start, start.sha256)


def _settings() -> TrainConfig:
    return composed("train", TrainConfig, "experiment=gnn", "trainer.progress_bar=false",
                    f"trainer.max_epochs={EPOCHS}", f"data.batch_size={BATCH_SIZE}")  # fmt: skip


def make(result: PublicRuns, out: Path, families: Sequence[str], names: Sequence[str]) -> None:
    """The cells that are missing."""
    learners, ops = rows(out), from_ops() if FROM_OPS in names else None
    for family in families:
        _records(result, out, family, {name: learners[name] for name in names if name != FROM_OPS}, None)
        if ops is not None:
            _records(result, out, family, {FROM_OPS: ops}, ops.start.earlier)


def _records(
    result: PublicRuns, out: Path, family: str, learners: Mapping[str, Learner], earlier: Earlier | None
) -> None:
    if not learners:
        return
    config = DataConfig(path="public runs", axis=family)  # nothing is read there: the runs are at hand
    data = SplitData(prepare(config, result.split(family), result.graphs.__getitem__, earlier), 1.0)
    for name, learner in learners.items():
        place = Place(out / "cells", name, SEED if name in (NETWORK, FROM_OPS) else None)
        made = ensure_record(place, learner, data)
        print(f"{family}/{name}: {'made' if made else 'is there'}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing, print; 2 for bad input."""
    parser, every = (
        argparse.ArgumentParser(prog="python -m research.benchmarks.public_families"),
        [*rows(OUT), FROM_OPS],
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--rows", nargs="+", choices=every, default=every)
    parser.add_argument("--print-only", action="store_true", help="tables of the cells that are there")
    args = parser.parse_args(arguments)
    result = public_runs()
    try:
        if not args.print_only:
            make(result, args.out, args.families, args.rows)
    except InputError as error:
        print(f"public_families: {error}", file=sys.stderr)
        return error.exit_code
    console = Console(width=200)
    for table in tables(read_records(args.out / "cells", "test"), result):
        console.print(table)
    for line in result.left_out:
        print(f"left out: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
