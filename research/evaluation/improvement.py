"""Probability of improvement: how often one row beats another, over what could have come out otherwise.

Bouthillier et al. 2021, "Accounting for variance in machine learning benchmarks" (MLSys), section 5: P(A > B) is the
share of pairs in which A is better. Here a pair is a seed of A, a seed of B and one bootstrap of the held-out runs, on
which both are judged; equal errors count half.

The paper's interval resamples its pairs. Bootstraps of the same few runs are not new evidence, however many are drawn:
here runs and seeds are drawn first and P is computed on the draw as on the data, so that few runs or few seeds make
the interval wide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from gnnperf.core import InputError, each
from research.evaluation.row_errors import Rows
from research.evaluation.run_sums import LEVEL, METRICS, RunSums, draws

GAMMA = 0.75  # Bouthillier et al. 2021: from here on a difference is meaningful
EVEN = 0.5
SAME = 1e-12  # sums in another order differ by less


class Verdict(StrEnum):
    """What an interval of P states."""

    MEANINGFUL = "significant and meaningful"  # low > 0.5 and P >= GAMMA
    SIGNIFICANT = "significant"  # low > 0.5
    OPEN = "not shown"
    LOST = "lost beyond noise"  # high < 0.5


@dataclass(frozen=True)
class Improvement:
    """P(A > B)."""

    probability: float  # share of pairs in which A's error is below B's
    # low, high: 95 %; NaN with fewer than two runs
    low: float
    high: float
    num_runs: int  # runs that were judged

    @property
    def verdict(self) -> Verdict:
        """Of the interval; without one nothing is shown."""
        if self.low > EVEN:
            return Verdict.MEANINGFUL if self.probability >= GAMMA else Verdict.SIGNIFICANT
        return Verdict.LOST if self.high < EVEN else Verdict.OPEN


def improvement(one: RunSums, other: RunSums, *, num_draws: int = 1000, num_inner: int = 200) -> Improvement:
    """P(one > other) with its interval."""
    if one.runs != other.runs:
        raise InputError("the two rows were judged on different runs", where="cells",
                         remedy="python -m research.benchmarks.learned makes such cells again")  # fmt: skip
    num_runs, draw = len(one.runs), np.random.default_rng(0)
    result = share_better(one, other, draws(draw, num_runs, num_draws))
    if num_runs < 2:
        return Improvement(result, float("nan"), float("nan"), num_runs)
    inner = draws(draw, num_runs, num_inner)  # [num_inner, num_runs], of whatever runs were drawn
    again = []  # P on runs and seeds drawn with replacement
    for _ in range(num_draws):
        chosen = draw.integers(0, num_runs, num_runs)  # [num_runs]
        again.append(share_better(_drawn(one, chosen, draw), _drawn(other, chosen, draw), inner))
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Improvement(result, float(low), float(high), num_runs)


def share_better(one: RunSums, other: RunSums, counts: np.ndarray) -> float:
    """Share of (draw, seed of one, seed of other) in which `one` errs less; runs drawn counts [num_draws, num_runs]."""
    ours, theirs = one.of_draws(counts)[:, :, None], other.of_draws(counts)[:, None, :]
    over = ours / theirs - 1.0  # [num_draws, num_seeds of one, num_seeds of other]
    return float((over < -SAME).mean() + 0.5 * (np.abs(over) <= SAME).mean())


def _drawn(sums: RunSums, runs: np.ndarray, draw: np.random.Generator) -> RunSums:
    num_seeds = len(sums.total)
    chosen = np.ix_(draw.integers(0, num_seeds, num_seeds), runs)
    return RunSums(tuple(sums.runs[r] for r in runs), sums.total[chosen], sums.weight[chosen])


def comparisons(splits: Mapping[str, Rows], of: str, others: Sequence[str]) -> pd.DataFrame:
    """A row per split, other learner and metric that both have: errors, P with its interval, verdict."""
    pairs = [(split, other) for split, rows in splits.items() for other in others if of in rows and other in rows]
    result = []
    for split, other in each(pairs, "resampling runs and seeds", "comparisons"):
        for metric, sums in METRICS.items():
            ours, theirs = sums(splits[split][of]), sums(splits[split][other])
            if ours is None or theirs is None:  # whole steps only
                continue
            better = improvement(ours, theirs)
            result.append({
                "over": other, "metric": metric, "split": split, "runs": better.num_runs, "seeds": len(ours.total),
                "seeds_over": len(theirs.total), "error": ours.value, "error_over": theirs.value,
                "probability": better.probability, "low": better.low, "high": better.high,
                "verdict": str(better.verdict),
            })  # fmt: skip
    return pd.DataFrame(result)
