"""Peak memory of an edited step against the measured peak of the program that it was edited to.

    python -m research.benchmarks edited_peak_memory

A's step with a larger or smaller batch, or under autocast, against what the recorder of B counted; rank by rank, first
recordings. `recorded`: what the same account says of B's own recording, the best that an edit can do. Trivial answers:
nothing changes; memory scales as the batch, or as the bytes of an element. The rules of batch edits were written
looking at pairs both of whose runs are train runs of split `run`. Those of dtype edits were written without any pair.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.core import InputError
from gnnperf.gnn.data.recordings import Recording
from gnnperf.gnn.data.splits import PARTS, read_split
from gnnperf.graph import load_graph
from gnnperf.memory import measured_peaks, memory_edits, peak_memory
from gnnperf.trace import read_run
from research.benchmarks._edit_pairs import EditPair, shape_pairs
from research.benchmarks._recorded_graphs import CACHE, DATASET, recordings
from research.benchmarks.peak_memory import BATCHES_HELD

GROUPS = ("batch, rules written with it", "batch, other pairs", "dtype (autocast)")
ANSWERS = ("edit", "recorded", "nothing changes", "scales")


@dataclass(frozen=True)
class Outcome:
    """One rank of one pair: errors of the answers, predicted / measured - 1."""

    group: str
    pair: EditPair
    errors: tuple[float, float, float, float]


def outcomes(pair: EditPair, known: dict[str, Recording], group: str) -> Iterable[Outcome]:
    """Each rank."""
    a, b = (read_run(known[f"{name}/1"].path) for name in (pair.a, pair.b))
    graph = load_graph(known[f"{pair.a}/1"].path, CACHE)
    edits = memory_edits(graph.step(graph.steps[0].step).for_predictors(), pair.edits, on_gpu=False)
    before, after = measured_peaks(a.card), measured_peaks(b.card)
    given = peak_memory(a, batches_held=BATCHES_HELD, variant=edits.variant)
    for peak, own in zip(given, peak_memory(b, batches_held=BATCHES_HELD), strict=True):
        measured, unchanged = after[peak.rank], before[peak.rank].peak_bytes / after[peak.rank].peak_bytes
        yield Outcome(group, pair, (measured.error(peak), measured.error(own), unchanged - 1.0,
                                    pair.trivial * unchanged - 1.0))  # fmt: skip


def group_of(pair: EditPair, part_of: dict[str, str]) -> str:
    """Whether the rules were written with the pair at hand."""
    if pair.kind == "dtype":
        return GROUPS[2]
    seen = all(part_of.get(f"{run}/1") == "train" for run in (pair.a, pair.b))
    return GROUPS[0] if seen else GROUPS[1]


def summary(result: list[Outcome]) -> Table:
    """A row per group and answer."""
    table = Table("pairs", "answer", "ranks", "mean %", "median %", "p90 %", "max %", "bias %")
    for group in GROUPS:
        for place, answer in enumerate(ANSWERS):
            errors = 100.0 * np.array([o.errors[place] for o in result if o.group == group])  # [num_ranks]
            size = np.abs(errors)
            figures = (size.mean(), np.median(size), np.quantile(size, 0.9), size.max())
            table.add_row(group, answer, str(len(errors)), *(f"{f:.1f}" for f in figures), f"{errors.mean():+.1f}")
    return table


def worst(result: list[Outcome], count: int = 6) -> Table:
    """The pairs with the largest errors of the edit."""
    table = Table("pairs", "A", "B", *(f"{answer} %" for answer in ANSWERS))
    for one in sorted(result, key=lambda o: -abs(o.errors[0]))[:count]:
        table.add_row(one.group, one.pair.a, one.pair.b, *(f"{100 * e:+.1f}" for e in one.errors))
    return table


def main() -> None:
    """Print the summary, the worst pairs and those that are refused."""
    known, split = recordings(), read_split(DATASET, "run")
    part_of = {name: part for part in PARTS for name in split.part(part)}
    runs = {r.run for r in known.values() if f"{r.run}/1" in known}
    result: list[Outcome] = []
    console = Console(width=170)
    for pair in shape_pairs(runs):
        try:
            result += outcomes(pair, known, group_of(pair, part_of))
        except InputError as error:
            console.print(f"refused: {pair.a} -> {pair.b}: {error}")
    console.print(summary(result))
    console.print(worst(result))


if __name__ == "__main__":
    main()
