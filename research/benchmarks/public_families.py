"""Public runs on GPUs, one workload family left out at a time: the network next to trivial answers.

    python -m research.benchmarks.public_families [--out DIR] [--families NAME ..] [--rows NAME ..] [--print-only]

Of every family: rows are fitted on all other families but one, which validates (the next in order; it chooses the
network's best epoch and how much it may correct), and judged on the family. The labels are those of the trace: the
median period, of a single step its makespan, of a run without step marks the whole pass. Recordings of one program are
one example where they train; where they judge, each stands for itself. Steps in which a rank sleeps are listed apart.
host-pace and host-and-device-pace are no predictors: they take the speed of the machine from the recording itself.

Cells are kept in DIR and made if they are missing or of other data, as those of `learned`; a training of the row gnn
that was killed goes on after its last whole epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.core import NodeType
from gnnperf.gnn import TrainConfig
from gnnperf.gnn.data.prepare import DataConfig, prepare
from gnnperf.predict import composed
from research.baselines.judge import Learner
from research.baselines.network import Network
from research.baselines.table import Place, SplitData, ensure_record
from research.baselines.trivial import Analytic, Base, NearestNodes, OpConstant
from research.baselines.whole_steps import MedianStep, NearestStep
from research.benchmarks._frame import parser_of, percent, run_main, show
from research.benchmarks._networks import CachedNetwork
from research.benchmarks._public_families import FAMILIES, ONE_PASS, OwnScale, PublicRuns, public_runs
from research.evaluation.records import EvaluationRecord, read_records
from research.evaluation.row_errors import Figures, node_figures, rows_of, step_figures

ByFamily = Mapping[str, Mapping[str, EvaluationRecord]]  # family -> row -> its record


def pooled(records: Sequence[EvaluationRecord]) -> EvaluationRecord:
    """The records of one row over families as one."""
    starts = np.cumsum([0, *(len(record.steps) for record in records)])
    nodes = [
        record.nodes.assign(recording=record.nodes["recording"] + start, kind=record.nodes["kind"].astype(object))
        for record, start in zip(records, starts[:-1], strict=True) if record.nodes is not None
    ]  # fmt: skip
    steps = pd.concat([record.steps for record in records], ignore_index=True)
    return replace(records[0], steps=steps, nodes=pd.concat(nodes, ignore_index=True) if nodes else None)


def only(record: EvaluationRecord, recordings: Sequence[str]) -> EvaluationRecord | None:
    """The record's predictions for these recordings; None without any."""
    retained = record.steps["recording"].isin(recordings).to_numpy()  # [num_recordings]
    if not retained.any():
        return None
    nodes = record.nodes
    if nodes is not None:
        place = np.cumsum(retained) - 1
        own = nodes["recording"].to_numpy()
        nodes = nodes[retained[own]].assign(recording=place[own[retained[own]]])
    return replace(record, steps=record.steps[retained].reset_index(drop=True), nodes=nodes)


def tables(records: Sequence[EvaluationRecord], result: PublicRuns) -> list[Table]:
    """What there is; steps and nodes by family and over all; what sleeps."""
    every = {family: rows for family, rows in rows_of(records).items() if family in FAMILIES}
    awake = _parts(every, lambda family: result.of(family))
    marked = {family: rows for family, rows in awake.items() if family not in ONE_PASS}
    asleep = _parts(every, lambda family: result.asleep)
    return [
        families(result),
        by_family("steps: mean |predicted / measured - 1| in %", awake, lambda record: step_figures([record]).mean),
        by_family("nodes: GMAE in %", awake, lambda record: _gmae(record)),
        over_all("steps between marks", marked, lambda record: step_figures([record])),
        over_all("steps, and passes without marks", awake, lambda record: step_figures([record])),
        over_all("nodes", awake, lambda record: node_figures([record])),
        by_family("apart: a rank sleeps; steps: mean error in %", asleep, lambda record: step_figures([record]).mean),
    ]


def _parts(
    every: Mapping[str, Mapping[str, Sequence[EvaluationRecord]]], names: Callable[[str], Sequence[str]]
) -> ByFamily:
    """Of each record the recordings that `names` gives for its family; families without any are left out."""
    result = {family: {row: only(seeds[0], names(family)) for row, seeds in rows.items()}
             for family, rows in every.items()}  # fmt: skip
    retained = {
        family: {row: record for row, record in rows.items() if record is not None} for family, rows in result.items()
    }
    return {family: rows for family, rows in retained.items() if rows}


def families(result: PublicRuns) -> Table:
    """What every family is."""
    table = Table("family", "recordings", "programs", "devices", "steps ms", "kernels with shapes %", "measured")
    for family in (name for name in FAMILIES if result.of(name)):
        runs = [result.graphs[name] for name in result.of(family)]
        labels = [label for run in runs for label in run.graph.steps]
        steps_ms = [(one.makespan_us if one.period_us is None else one.period_us) / 1e3 for one in labels]
        devices = sorted({run.cluster.device.name for run in runs})
        table.add_row(family, str(len(runs)), str(len({run.run.rpartition("/")[0] for run in runs})),
                      ", ".join(devices), f"{min(steps_ms):.1f} to {max(steps_ms):.1f}",
                      percent(float(np.mean([_with_shapes(run.graph.nodes) for run in runs]))),
                      "a pass" if family in ONE_PASS else "steps")  # fmt: skip
    return table


def _with_shapes(nodes: pd.DataFrame) -> float:
    """Share of kernels whose op's shapes are known."""
    return float(nodes["input_dims"][nodes["node_type"] == NodeType.COMPUTE].notna().mean())


def by_family(title: str, result: ByFamily, figure: Callable[[EvaluationRecord], float]) -> Table:
    """Rows by families, the number of recordings in the head."""
    count = {family: len(next(iter(rows.values())).steps) for family, rows in result.items()}
    ordered = [family for family in FAMILIES if family in result]
    table = Table("row", *(f"{family} ({count[family]})" for family in ordered), title=title, title_justify="left")
    for row in _rows(result):
        table.add_row(row, *(percent(figure(result[f][row])) if row in result[f] else "-" for f in ordered))
    return table


def over_all(title: str, result: ByFamily, figures: Callable[[EvaluationRecord], Figures | None]) -> Table:
    """A row per learner that has answered for every family."""
    table = Table("row", "count", "geomean %", "95 %", "mean", "median", "p90", "max", "bias", title=title,
                  title_justify="left")  # fmt: skip
    for row in _rows(result):
        records = [rows[row] for rows in result.values() if row in rows]
        given = figures(pooled(records)) if len(records) == len(result) else None
        if given is not None:
            spread = (given.mean, given.median, given.p90, given.max, given.bias)
            table.add_row(
                row,
                str(given.count),
                percent(given.gmae),
                f"{percent(given.low)} - {percent(given.high)}",
                *map(percent, spread),
            )
    return table


def _rows(result: ByFamily) -> list[str]:
    return list(dict.fromkeys(row for rows in result.values() for row in rows))


def _gmae(record: EvaluationRecord) -> float:
    result = node_figures([record])
    return float("nan") if result is None else result.gmae


OUT, SEED, NETWORK = Path("outputs/public_families"), 0, "gnn"
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


def _settings() -> TrainConfig:
    return composed("train", TrainConfig, "experiment=gnn", "trainer.progress_bar=false",
                    f"trainer.max_epochs={EPOCHS}", f"data.batch_size={BATCH_SIZE}")  # fmt: skip


def make(result: PublicRuns, out: Path, families: Sequence[str], names: Sequence[str]) -> None:
    """The records that are missing."""
    learners = rows(out)
    for family in families:
        config = DataConfig(path="public runs", axis=family)  # nothing is read there: the runs are at hand
        data = SplitData(prepare(config, result.split(family), result.graphs.__getitem__))
        for name in names:
            made = ensure_record(Place(out / "cells", name, SEED if name == NETWORK else None), learners[name], data)
            print(f"{family}/{name}: {'made' if made else 'is there'}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> None:
    """Make what is missing, print."""
    parser, every = parser_of(__doc__), list(rows(OUT))
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"default: {OUT}")
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--rows", nargs="+", choices=every, default=every)
    parser.add_argument("--print-only", action="store_true", help="tables of the existing records")
    args = parser.parse_args(arguments)
    result = public_runs()
    if not args.print_only:
        make(result, args.out, args.families, args.rows)
    show(*tables(read_records(args.out / "cells", "test"), result), width=200)
    for line in result.left_out:
        print(f"left out: {line}")


if __name__ == "__main__":
    run_main(main)
