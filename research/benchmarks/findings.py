"""Rules of `gnnperf.whatif.findings` on recordings with a known sleep of one rank, and on the same programs without it.

Each pair of kind sleep of datasets/cpu-gloo: B is A with a sleep of one rank at a place of every step. Both are looked
at as measured (their first recording). On B: which rank the straggler rule names, and what it says is gained, next to
what was measured: the step of B less the step of A. Trivial answers: the sleep; nothing. On A: what the rule says of a
program in which no one sleeps. Nothing is fitted; thresholds were set before.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import numpy as np

from gnnperf.graph import load_graph
from gnnperf.predict import choose_step, measured_step_time_us
from gnnperf.schedule import NUM_UNROLLED
from gnnperf.whatif import Finding, find, measured_step
from gnnperf.whatif.findings.communication import straggler
from gnnperf.whatif.findings.search import RULES
from research.benchmarks._recorded_graphs import DATASET
from research.evaluation.pairs import PAIRS, Change

RECORDING = "1"
NEED_PREDICTOR = ("unfused_chains", "repeated_models", "skewed_tables")
WITHOUT_PREDICTOR = tuple(rule for rule in RULES if rule.__name__ not in NEED_PREDICTOR)


@dataclass(frozen=True)
class Seen:
    """One recording: its median step, and what rules find in it."""

    step_us: float
    result: tuple[Finding, ...]

    @property
    def straggler(self) -> Finding | None:
        """The finding of the straggler rule; None: it finds none."""
        return next((one for one in self.result if one.rule == straggler.__name__), None)


@dataclass(frozen=True)
class Case:
    """A pair with a known sleep."""

    rank: int
    place: str
    sleep_us: float
    without: Seen
    slept: Seen

    @property
    def cost_us(self) -> float:
        """Measured: what the sleep costs a step."""
        return self.slept.step_us - self.without.step_us

    @property
    def named(self) -> str:
        """Which rank the rule names."""
        result = self.slept.straggler
        if result is None:
            return "none"
        return "right" if result.cause.startswith(f"rank {self.rank} ") else "wrong"

    @property
    def gain_us(self) -> float:
        """What the rule says is gained; 0 where it finds nothing."""
        result = self.slept.straggler
        return 0.0 if result is None or result.gain_us is None else result.gain_us


def main() -> None:
    """Look at every pair and print the tables."""
    pairs = [pair for pair in json.loads((DATASET / PAIRS).read_text())["pairs"] if pair["kind"] == Change.SLEEP]
    cases = [_case(pair) for pair in pairs]
    print("rank that sleeps, place, sleep; step without, with; cost measured; rank named; gain told; other findings")
    for case in cases:
        others = [one.rule for one in case.slept.result if one.rule != straggler.__name__]
        ms = [us / 1e3 for us in (case.sleep_us, case.without.step_us, case.slept.step_us, case.cost_us, case.gain_us)]
        print(f"{case.rank} {case.place:9s} {ms[0]:5.1f} ms; {ms[1]:6.2f}, {ms[2]:6.2f} ms; {ms[3]:6.2f} ms; "
              f"{case.named}; {ms[4]:6.2f} ms; {', '.join(others) or 'none'}")  # fmt: skip
    print(f"\nrank named, of {len(cases)}: {dict(Counter(case.named for case in cases))}")
    cost_us = np.array([case.cost_us for case in cases])
    _errors("told by the rule", np.array([case.gain_us for case in cases]), cost_us)
    _errors("the sleep (trivial)", np.array([case.sleep_us for case in cases]), cost_us)
    _errors("nothing (trivial)", np.zeros(len(cases)), cost_us)
    print("\nthe same programs without a sleep: straggler, share of the step that is gained")
    shares = [0.0 if (result := case.without.straggler) is None else result.gain_share or 0.0 for case in cases]
    print(", ".join(f"{100.0 * share:.1f} %" if share else "none" for share in shares))


def _case(pair: dict[str, object]) -> Case:
    edit = pair["edit"]
    assert isinstance(edit, dict)
    return Case(edit["rank"], edit["place"], edit["sleep_us"], _seen(str(pair["a"])), _seen(str(pair["b"])))


def _seen(run: str) -> Seen:
    graph = load_graph(DATASET / run / RECORDING)
    label = choose_step(graph, None)
    step = measured_step(graph.step(label.step).for_predictors(), NUM_UNROLLED)
    return Seen(measured_step_time_us(label), find(step, WITHOUT_PREDICTOR))


def _errors(answer: str, predicted_us: np.ndarray, cost_us: np.ndarray) -> None:
    """Relative errors of the gain, in percent of what was measured."""
    error = 100.0 * (predicted_us / cost_us - 1.0)
    size = np.abs(error)
    print(f"error of the gain, {answer}: mean {size.mean():.1f} %, median {np.median(size):.1f} %, p90 "
          f"{np.quantile(size, 0.9):.1f} %, maximum {size.max():.1f} %, bias {error.mean():+.1f} %")  # fmt: skip


if __name__ == "__main__":
    main()
