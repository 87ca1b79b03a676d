"""What was trained on one machine, requested another one: the programs of `run`'s test part, recorded there.

    python -m research.benchmarks.learned --splits run-cpu-again ..       learned rows (trained on the first machine,
    as `run`)
    python -m research.benchmarks.second_machine [--out DIR]      rows that know the same runs of the first one

same-run: what the first machine recorded of the very run, as it is. same-run-scaled: times one number, how much longer
the second machine takes for the matrix product that is timed before every recording. No learned row knows these runs.

Prints how much longer steps and nodes took on the second machine (quantiles, each counts once), how far off the same
run and the network (seed 0) are by time for each kind of node, then the tables of `learned`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from gnnperf.gnn import node_kinds
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.recordings import CARD, read_json, read_recordings
from gnnperf.gnn.data.runs import RunStep, merged, read_runs, run_of, typical
from gnnperf.gnn.evaluation.metrics import gmae
from gnnperf.schedule import align
from research.baselines.table import Place, ensure_record, load_split
from research.benchmarks._frame import parser_of, right_aligned, run_main, show
from research.benchmarks._learned_jobs import AGAIN, data_config, dataset, save_network
from research.benchmarks._recorded_graphs import DATASET
from research.evaluation.records import EvaluationRecord, read_records
from research.evaluation.row_errors import print_tables

OUT = Path("outputs/learned/test")
BY_KIND = (("same-run", None), ("gnn", 0))  # row and seed


@dataclass(frozen=True)
class SameRun:
    """Answers with what another machine recorded of the same run."""

    known: Mapping[str, RunStep] = field(repr=False)
    factor: float = 1.0
    name: str = field(init=False)

    def __post_init__(self) -> None:
        """Name it."""
        given = [(run, step.step_us, step.graph.nodes["latency_us"].to_numpy()) for run, step in self.known.items()]
        object.__setattr__(self, "name", content_digest(given)[:12])

    def fit(self, data: PreparedData, seed: int) -> SameRun:
        """Nothing to fit."""
        return self

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes]; NaN where the other machine recorded no such node."""
        other = self.known[run_of(step.run)]
        matched = align(step.graph, other.graph)  # [num_nodes]
        latency_us = other.graph.nodes["latency_us"].to_numpy(np.float64)
        return np.where(matched >= 0, latency_us[matched], np.nan) * self.factor

    def step_us(self, step: Step) -> float:
        """As it was recorded there."""
        return self.known[run_of(step.run)].step_us * self.factor


def main(arguments: Sequence[str]) -> None:
    """Make the two rows, print."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"of the records; default: {OUT}")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)  # as in `learned`: fingerprints of data go by sums that depend on it
    _make(args.out)
    records = read_records(args.out, "test")
    _print_kinds(records)
    print_tables(records, (AGAIN,))
    save_network("second_machine", records, AGAIN)


def _make(out: Path) -> None:
    split = load_split(data_config(AGAIN))
    known = _first_machine([run_of(step.run) for step in split.data.steps["test"]])
    factor = _probe_us(dataset("cpu-again")) / _probe_us(DATASET)
    print(f"One matrix product takes {factor:.2f} of its time on the first machine.")
    _print_ratios(split.data.steps["test"], SameRun(known))
    ensure_record(Place(out, "same-run", None), SameRun(known), split)
    ensure_record(Place(out, "same-run-scaled", None), SameRun(known, factor), split)


def _first_machine(runs: Sequence[str]) -> dict[str, RunStep]:
    """Run -> means over its recordings there."""
    read = read_runs(DATASET, Path(data_config(AGAIN).cache_dir).expanduser(), None, None)
    recordings = read_recordings(DATASET)
    names = [one.name for run in dict.fromkeys(runs) for one in recordings[run].values()]
    return {step.run: step for step in merged([typical(read(name)) for name in names])}


def _probe_us(dataset: Path) -> float:
    """Median over recordings of the product that is timed before each, over its cores."""
    cards = [read_json(one.path / CARD) for repeats in read_recordings(dataset).values() for one in repeats.values()]
    return float(np.median([np.median(card["probe"]["before_us"]) for card in cards]))


def _print_ratios(steps: Sequence[Step], first: SameRun) -> None:
    """Second machine over first: steps by program, nodes by kind."""
    by_program, by_kind = _step_ratios(steps, first), _node_ratios(steps, first)
    for title, by, pairs in (("steps", "program", by_program), ("nodes", "kind", by_kind)):
        table = right_aligned(
            f"{title} by {by}: time on the second machine over the first", "count", "median", "p10", "p90"
        )
        for group, ratios in sorted(_by(pairs).items()):
            table.add_row(group, str(len(ratios)), *(f"{q:.2f}" for q in np.quantile(ratios, (0.5, 0.1, 0.9))))
        show(table, width=100)


def _print_kinds(records: Sequence[EvaluationRecord]) -> None:
    """What nodes of each kind weigh, and how far off rows are by time: of the first machine's recording, and seed 0."""
    table = right_aligned("nodes by kind: share of their time, error by time in %", "row", "share", "by time")
    for record in records:
        if (
            record.origin.split != AGAIN
            or record.nodes is None
            or (record.origin.row, record.origin.seed) not in BY_KIND
        ):
            continue
        whole_us = record.nodes["measured_us"].sum()
        for kind, nodes in record.nodes.groupby("kind", observed=True):
            predicted, measured = (nodes[c].to_numpy(np.float64) for c in ("predicted_us", "measured_us"))  # [n] each
            error = f"{100 * gmae(predicted, measured, measured):.1f}"
            table.add_row(str(kind), record.origin.row, f"{100 * measured.sum() / whole_us:.0f}", error)
    show(table, width=100)


def _step_ratios(steps: Sequence[Step], first: SameRun) -> Iterator[tuple[str, float]]:
    for step in steps:
        yield step.workload, step.step_us / first.step_us(step)


def _node_ratios(steps: Sequence[Step], first: SameRun) -> Iterator[tuple[str, float]]:
    for step in steps:
        here_us, there_us = step.nodes["latency_us"].to_numpy(np.float64), first.latency_us(step)  # [num_nodes]
        use = (np.nan_to_num(here_us) > 0) & (np.nan_to_num(there_us) > 0)
        yield from zip(node_kinds(step.nodes)[use], (here_us[use] / there_us[use]).tolist(), strict=True)


def _by(pairs: Iterator[tuple[str, float]]) -> dict[str, list[float]]:
    result: dict[str, list[float]] = {}
    for name, value in pairs:
        result.setdefault(name, []).append(value)
    return result


if __name__ == "__main__":
    run_main(main)
