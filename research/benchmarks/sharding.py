"""The fastest of many placements of embedding tables, picked without running any of them.

    python -m research.benchmarks sharding

Per problem one placement was recorded (datasets/cpu-sharding); 24 others were timed (placements.json, three passes on
the same ranks). Each is predicted from that one recording: an edit moves the tables, the schedule gives the step. A
pick is right if its measured step is within the noise floor of the fastest; `regret` is what it costs beyond the
fastest. Greedy: whole tables, the largest (by bytes, by looked up bytes) first, to the emptier rank. All measured:
every candidate was run in one pass, and the other passes judge. Chance: a random candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from research.benchmarks._recorded_graphs import recorded_graphs
from research.benchmarks._sharding import DATASET, Measured, Predicted, given, measured
from research.recording.sharding_problems import Problem, by_lookups, by_size, canonical, problems

FLOORS = 3.0  # a problem is hard to miss by chance where candidates spread over more noise floors


@dataclass(frozen=True)
class Outcome:
    """One problem.

    Attributes:
        problem: which.
        seen: what was measured.
        sentences: what was predicted.
    """

    problem: Problem
    seen: Measured
    sentences: Predicted

    @property
    def picks(self) -> dict[str, int]:
        """Who picks which candidate."""
        return {
            "anchored": int(self.sentences.calibrated_us.argmin()),
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


def main() -> None:
    """Print a row per problem, then the summary."""
    result, console = outcomes(), Console(width=150)
    console.print(_problems(result))
    console.print(_summary(result))


def _problems(result: list[Outcome]) -> Table:
    table = Table("problem", "tables", "fastest ms", "spread %", "noise %", "right by chance %", "regret %: anchored",
                  "analytic", "greedy, size", "greedy, lookups", "agreement")  # fmt: skip
    for one in result:
        regrets = [f"{100 * one.regret[pick]:.1f}{'' if one.right[pick] else ' !'}" for pick in one.picks.values()]
        model, seen = one.problem.recorded, one.seen
        table.add_row(model.label, str(len(model.tables)), f"{seen.step_us.min() / 1e3:.2f}",
                      f"{100 * seen.spread:.0f}", f"{100 * seen.noise:.1f}", f"{100 * one.right.mean():.0f}", *regrets,
                      f"{one.agreement:.2f}")  # fmt: skip
    return table


def _summary(result: list[Outcome]) -> Table:
    wide = sum(np.log1p(one.seen.spread) > FLOORS * one.seen.noise for one in result)
    table = Table("who", "right %", "regret %: mean", "median", "p90", "largest",
                  title=f"{len(result)} problems, {wide} spread over more than {FLOORS:g} noise floors")  # fmt: skip
    for who in result[0].picks:
        regret = 100 * np.array([one.regret[one.picks[who]] for one in result])
        right = np.mean([one.right[one.picks[who]] for one in result])
        table.add_row(who, f"{100 * right:.0f}", *_spread(regret))
    once = [np.concatenate(values) for values in zip(*(one.seen.once() for one in result), strict=True)]
    table.add_row("all measured, in one pass", f"{100 * once[1].mean():.0f}", *_spread(100 * once[0]))
    everybody = 100 * np.concatenate([one.regret for one in result])
    table.add_row("chance", f"{100 * np.mean([one.right.mean() for one in result]):.0f}", *_spread(everybody))
    return table


def _spread(regret: np.ndarray) -> tuple[str, ...]:
    return tuple(f"{v:.1f}" for v in (regret.mean(), np.median(regret), np.quantile(regret, 0.9), regret.max()))


if __name__ == "__main__":
    main()
