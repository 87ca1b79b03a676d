"""The profiler's own cost: step times scheduled from corrected graphs against steps measured without the profiler.

    python -m research.benchmarks.profiler_cost [DATASET [CACHE]]

DATASET holds runs as `gnnperf record` leaves them (<run>/<repeat>/run.json or <run>/run.json); CACHE keeps graphs.
A run is corrected with costs found without it and without its repeats: its own two step times judge, and do no more.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.core import InputError
from gnnperf.graph import load_graph
from gnnperf.graph.profiler_cost import ProfilerCost, cost_of_card, without_profiler
from gnnperf.record.profiler_cost import measure
from research.evaluation.profiler_cost import Effect, effect, fit_cost, fit_factor, median_cost, period_us

DATASET = Path("datasets/cpu-gloo")
EXAMPLES = "examples"
UNCORRECTED, RATIO = "uncorrected", "one ratio for all runs"
MEASURED, SCALED, FITTED = "measured", "measured x factor", "fitted"
METHODS = (UNCORRECTED, RATIO, MEASURED, SCALED, FITTED)
Fit = Callable[[Sequence[Effect]], ProfilerCost]


@dataclass(frozen=True)
class Run:
    """One recording: its folder, its card and what the profiler does to it."""

    folder: Path
    card: Mapping[str, Any]
    effect: Effect


def runs(dataset: Path, cache: Path) -> list[Run]:
    """All complete recordings of a data set; its examples are among them."""
    result = []
    for path in sorted(dataset.rglob("run.json")):
        card = json.loads(path.read_text())
        if card.get("status") == "complete" and EXAMPLES not in path.relative_to(dataset).parts:
            folder = path.parent
            name = folder.parent.name if folder.name.isdecimal() else folder.name
            without_us = float(card["step_time"]["without_profiler"]["median_us"])
            result.append(Run(folder, card, effect(name, load_graph(folder, cache), without_us)))
    if not result:
        raise InputError("holds no complete recordings", where=str(dataset), allowed="folders with a run.json")
    return result


def measured_cost(result: Sequence[Run]) -> ProfilerCost:
    """The median over the cards, or of this machine now if they carry none."""
    costs = [cost for run in result if (cost := cost_of_card(run.card)) is not None]
    if not costs:
        print("the cards carry no cost of the profiler: measured now, on this machine\n")
        costs = [cost for _ in range(9) if (cost := cost_of_card({"ranks": [{"profiler_cost": measure()}]}))]
    return median_cost(costs)


def without(result: Sequence[Run], run: Run) -> list[Effect]:
    """The effects on all other runs."""
    return [r.effect for r in result if r.effect.run != run.effect.run]


def errors(result: Sequence[Run], cache: Path, fits: Mapping[str, Fit]) -> dict[str, np.ndarray]:
    """[num_runs] relative error per method."""
    table: dict[str, list[float]] = {method: [] for method in METHODS}
    for run in result:
        others, truth_us = without(result, run), run.effect.without_us
        ratio = float(np.median([e.without_us / e.with_us for e in others]))
        answers = {UNCORRECTED: run.effect.with_us, RATIO: run.effect.with_us * ratio}
        graph = load_graph(run.folder, cache)
        answers |= {name: period_us(without_profiler(graph, fit(others)).graph) for name, fit in fits.items()}
        for method, answer_us in answers.items():
            table[method].append(answer_us / truth_us - 1.0)
    return {method: np.array(values) for method, values in table.items()}


def left_shares(result: Sequence[Run], cache: Path, cost: ProfilerCost) -> np.ndarray:
    """[num_runs] share of the cost that no latency could give."""
    parts = [without_profiler(load_graph(run.folder, cache), cost) for run in result]
    return np.array([p.left_us / max(p.left_us + p.removed_us, 1e-9) for p in parts])


def table(result: Sequence[Run], by_method: Mapping[str, np.ndarray]) -> None:
    """Median error, its 75 % quantile and its signed median, per program and over all."""
    programs = np.array([f"{r.card.get('workload')}, {r.card.get('world_size')} ranks" for r in result])
    without_us = np.array([r.effect.without_us for r in result])
    print(f"| program | runs | step ms | {' | '.join(METHODS)} |")
    print("|---" * (3 + len(METHODS)) + "|")
    for program in [*np.unique(programs).tolist(), "all"]:
        rows = (programs == program) | (program == "all")
        records = [_record(by_method[method][rows]) for method in METHODS]
        print(f"| {program} | {rows.sum()} | {np.median(without_us[rows]) / 1e3:.1f} | {' | '.join(records)} |")


def _record(error: np.ndarray) -> str:
    size = np.abs(error)
    return f"{np.median(size):.1%} / {np.quantile(size, 0.75):.1%} ({np.median(error):+.1%})"


def show(name: str, cost: ProfilerCost) -> None:
    """One line per cost."""
    print(f"{name}: {', '.join(f'{kind} {value:.2f}' for kind, value in cost.by_kind().items())}; {cost.provenance}")


def main() -> None:
    """Print costs and errors."""
    dataset = Path(sys.argv[1]) if len(sys.argv) > 1 else DATASET
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(scratch)
        result = runs(dataset, cache)
        measured = measured_cost(result)
        effects = [run.effect for run in result]
        fits: dict[str, Fit] = {
            MEASURED: lambda others: measured,
            SCALED: lambda others: measured.scaled(fit_factor(others, measured), "scaled"),
            FITTED: fit_cost,
        }
        by_method = errors(result, cache, fits)
        print("error against the step without the profiler: median / 75 % quantile (signed median)\n")
        table(result, by_method)
        show("\n" + MEASURED, measured)
        show(FITTED, fit_cost(effects))
        print(f"factor on {MEASURED}: {fit_factor(effects, measured):.2f}")
        left = left_shares(result, cache, measured)
        print(f"of {MEASURED}, what no latency could give: median {np.median(left):.1%}, at most {left.max():.1%}")
        events = np.median([e.events for e in effects], axis=0)
        print(f"events per step that lengthen it, median over runs: ops {events[0]:.0f}, annotations {events[1]:.1f}")


if __name__ == "__main__":
    main()
