"""The fastest of many placements of embedding tables, picked without running any of them.

    python -m research.benchmarks sharding

Per problem one placement was recorded (datasets/cpu-sharding); 24 others were timed (placements.json, three passes on
the same ranks). Each is predicted from that one recording: an edit moves the tables, the schedule gives the step. A
pick is right if its measured step is within the noise floor of the fastest; `regret` is what it costs beyond the
fastest. Greedy: whole tables, the largest (by bytes, by looked up bytes) first, to the emptier rank. All measured:
every candidate was run in one pass, and the other passes judge. `--record` adds a pass to
placements.json. Chance: a random candidate.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as Printed

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate import Placed, Placement, Split, Table
from gnnperf.gnn.data.runs import cluster_for
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif import Edited
from gnnperf.whatif.findings.measured import calibrated_to_trace
from gnnperf.whatif.reshard import Model, Recorded
from research.benchmarks._frame import run_main
from research.benchmarks._recorded_graphs import recorded_graphs
from research.evaluation.step_times import step_times_us
from research.recording.sharding_problems import Problem, by_lookups, by_size, canonical, measure_all, problems
from research.recording.workloads.mixed_dlrm import PlacedTable

DATASET = Path("datasets/cpu-sharding")
PASSES = DATASET / "placements.json"
RANKS = 2


@dataclass(frozen=True)
class Measured:
    """Steps of a problem's candidates.

    Attributes:
        passes_us: [num_passes, num_candidates].
    """

    passes_us: np.ndarray

    @property
    def step_us(self) -> np.ndarray:
        """[num_candidates] geometric mean over passes."""
        return np.exp(np.log(self.passes_us).mean(axis=0))

    @property
    def noise(self) -> float:
        """Median relative difference of a candidate between two passes, beyond what all candidates share."""
        given = np.log(self.passes_us)
        apart = np.array([a - b for a, b in combinations(given, 2)])  # [num_pairs, num_candidates]
        return float(np.median(np.abs(apart - np.median(apart, axis=1, keepdims=True))))

    def once(self) -> tuple[np.ndarray, np.ndarray]:
        """[num_passes] of picking the fastest of a pass, judged by the others: regret; whether within the noise."""
        given, regret = np.log(self.passes_us), []
        for number, own in enumerate(given):
            others = np.delete(given, number, axis=0).mean(axis=0)
            regret.append(others[own.argmin()] - others.min())
        return np.expm1(regret), np.array(regret) <= self.noise

    @property
    def spread(self) -> float:
        """Slowest / fastest - 1."""
        return float(self.step_us.max() / self.step_us.min() - 1.0)


def measured() -> dict[str, Measured]:
    """Label of the problem -> what was measured."""
    passes = json.loads(PASSES.read_text())["passes"]
    labels = [one["problem"] for one in passes[0]]
    result = [{one["problem"]: one["step_us"] for one in each} for each in passes]
    return {label: Measured(np.array([each[label] for each in result])) for label in labels}


def tables_of(problem: Problem) -> tuple[Table, ...]:
    """In the words of `plan`."""
    return tuple(
        Table(str(t), one.rows, one.dim, one.pooling, one.skew) for t, one in enumerate(problem.recorded.tables)
    )


def placement_of(tables: Sequence[PlacedTable]) -> Placement:
    """In the words of `plan`."""
    all_ranks = tuple(range(RANKS))
    return tuple(
        Placed(Split(str(one.sharding)), (one.rank,) if Split(str(one.sharding)) is Split.TABLE else all_ranks)
        for one in tables
    )


@dataclass(frozen=True)
class Predicted:
    """Predicted steps of a problem's candidates, [num_candidates] each."""

    calibrated_us: np.ndarray
    analytic_us: np.ndarray


def given(problem: Problem, graph: ExecutionGraph) -> Predicted:
    """Predictions for every candidate, from one recording of another placement."""
    predictor, before = AnalyticPredictor(), placement_of(problem.recorded.tables)
    predicted_us = predictor.predict(graph, cluster_for(graph, None, None)).latency_us
    recorded = Recorded.read(graph, Model(tables_of(problem), RANKS, problem.recorded.batch), before)
    steps = []
    for tables in problem.candidates:
        edited = recorded.placed(placement_of(tables))
        after_us = predictor.predict(edited.graph, cluster_for(edited.graph, None, None)).latency_us
        steps.append(
            (
                _step_us(calibrated_to_trace(edited, graph, predicted_us, after_us)),
                _step_us(_analytic(edited, after_us)),
            )
        )
    return Predicted(*np.array(steps).T)


def _analytic(edited: Edited, after_us: np.ndarray) -> ExecutionGraph:
    """Touched nodes take the analytical latency."""
    latency_us = np.where(edited.touched, after_us, edited.graph.nodes["latency_us"].to_numpy())
    nodes = edited.graph.nodes.assign(latency_us=latency_us)
    return ExecutionGraph(**{**edited.graph.__dict__, "nodes": nodes})


def _step_us(graph: ExecutionGraph) -> float:
    """Median period after the first step of the window."""
    return float(np.median(step_times_us(graph)[1:]))


def record_pass() -> None:
    """Time every placement once and add the pass to the file; nothing else should run on the machine meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        measured = measure_all(Path(folder))
    result = json.loads(PASSES.read_text()) if PASSES.exists() else {"passes": []}
    result["passes"].append(measured)
    PASSES.write_text(json.dumps(result, indent=None, separators=(",", ":")) + "\n")


FLOORS = 3.0  # a problem is hard to miss by chance where candidates spread over more noise floors


@dataclass(frozen=True)
class Outcome:
    """One problem."""

    problem: Problem
    seen: Measured
    sentences: Predicted

    @property
    def picks(self) -> dict[str, int]:
        """Who picks which candidate."""
        return {
            "calibrated": int(self.sentences.calibrated_us.argmin()),
            "analytic": int(self.sentences.analytic_us.argmin()),
            "greedy, size": self._of(by_size),
            "greedy, lookups": self._of(by_lookups),
        }

    def _of(self, rule: object) -> int:
        assert callable(rule)
        wanted = canonical(rule(self.problem.recorded.tables, 2))
        return next(i for i, tables in enumerate(self.problem.candidates) if canonical(tables) == wanted)

    @property
    def regret(self) -> np.ndarray:
        """[num_candidates] slower than the fastest, relative."""
        regret: np.ndarray = self.seen.step_us / self.seen.step_us.min() - 1.0
        return regret

    @property
    def right(self) -> np.ndarray:
        """[num_candidates] bool: within the noise floor of the fastest."""
        right: np.ndarray = np.log1p(self.regret) <= self.seen.noise
        return right

    @property
    def agreement(self) -> float:
        """Spearman's correlation of predicted and measured steps."""
        places = np.array([values.argsort().argsort() for values in (self.sentences.calibrated_us, self.seen.step_us)])
        return float(np.corrcoef(places)[0, 1])


def outcomes() -> list[Outcome]:
    """Every problem that was recorded and measured."""
    seen, graphs = measured(), recorded_graphs(DATASET)
    recorded = {name.split("_")[2]: graph for name, graph in graphs.items()}  # mixed_dlrm_<label>_...
    chosen = [p for p in problems() if p.recorded.label in seen and p.recorded.label in recorded]
    return [Outcome(p, seen[p.recorded.label], given(p, recorded[p.recorded.label])) for p in chosen]


def main(arguments: Sequence[str]) -> None:
    """Print a row per problem, then the summary; `--record` times another pass instead."""
    if "--record" in arguments:
        record_pass()
        return
    result, console = outcomes(), Console(width=150)
    console.print(_problems(result))
    console.print(_summary(result))


def _problems(result: list[Outcome]) -> Printed:
    table = Printed("problem", "tables", "fastest ms", "spread %", "noise %", "right by chance %",
                    "regret %: calibrated", "analytic", "greedy, size", "greedy, lookups", "agreement")  # fmt: skip
    for one in result:
        regrets = [f"{100 * one.regret[pick]:.1f}{'' if one.right[pick] else ' !'}" for pick in one.picks.values()]
        model, seen = one.problem.recorded, one.seen
        table.add_row(model.label, str(len(model.tables)), f"{seen.step_us.min() / 1e3:.2f}",
                      f"{100 * seen.spread:.0f}", f"{100 * seen.noise:.1f}", f"{100 * one.right.mean():.0f}", *regrets,
                      f"{one.agreement:.2f}")  # fmt: skip
    return table


def _summary(result: list[Outcome]) -> Printed:
    wide = sum(np.log1p(one.seen.spread) > FLOORS * one.seen.noise for one in result)
    table = Printed("who", "right %", "regret %: mean", "median", "p90", "largest",
                  title=f"{len(result)} problems, {wide} spread over more than {FLOORS:g} noise floors")  # fmt: skip
    for who in result[0].picks:
        regret = 100 * np.array([one.regret[one.picks[who]] for one in result])
        right = np.mean([one.right[one.picks[who]] for one in result])
        table.add_row(who, f"{100 * right:.0f}", *_spread(regret))
    once = [np.concatenate(values) for values in zip(*(one.seen.once() for one in result), strict=True)]
    table.add_row("all measured, in one pass", f"{100 * once[1].mean():.0f}", *_spread(100 * once[0]))
    every = 100 * np.concatenate([one.regret for one in result])
    table.add_row("chance", f"{100 * np.mean([one.right.mean() for one in result]):.0f}", *_spread(every))
    return table


def _spread(regret: np.ndarray) -> tuple[str, ...]:
    return tuple(f"{v:.1f}" for v in (regret.mean(), np.median(regret), np.quantile(regret, 0.9), regret.max()))


if __name__ == "__main__":
    run_main(main)
