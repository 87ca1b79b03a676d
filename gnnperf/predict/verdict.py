"""Which model to use after a training: the network or the analytical model, by their steps of the validation runs.

The best epoch and the shrinkage of corrections were chosen on these runs, so the network's error is the lower end of
what to expect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from gnnperf.gnn import StepMiss

LEVEL = 0.95
NUM_DRAWS = 2000
MIN_RUNS = 6  # with fewer runs, all of them may favor one model by chance more often than 1 - LEVEL: 2 / 2^runs


class Use(StrEnum):
    """Which model the validation runs favor."""

    NETWORK = "network"
    ANALYTIC = "analytic"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Verdict:
    """Step errors of both models, |predicted / measured - 1|, as means over validation runs."""

    num_train_runs: int  # runs that were trained on
    num_val_runs: int  # runs that were validated on
    network: float  # error of the network
    analytic: float  # error of the analytical model, fitted on the training runs
    difference_interval: tuple[float, float]  # 95 % interval over runs of network - analytic; NaN with one run

    @property
    def use(self) -> Use:
        """Undecided with fewer than MIN_RUNS validation runs, and where the interval contains 0."""
        low, high = self.difference_interval
        if self.num_val_runs < MIN_RUNS or not (high < 0 or low > 0):
            return Use.UNDECIDED
        return Use.NETWORK if high < 0 else Use.ANALYTIC

    @property
    def evidence(self) -> str:
        """Both errors and what they are of, in one sentence."""
        low, high = self.difference_interval
        interval = (
            "no interval" if np.isnan(low) else f"{_percent(LEVEL, 0)} interval {_points(low)} to {_points(high)}"
        )
        return (
            f"Step error of {_runs(self.num_val_runs, 'validation')} after {_runs(self.num_train_runs, 'training')}: "
            f"{_percent(self.network)} with the network, {_percent(self.analytic)} with the analytical model, "
            f"difference {_points(self.network - self.analytic)} ({interval})."
        )

    @property
    def advice(self) -> str:
        """What to use, in one sentence."""
        if self.use is Use.NETWORK:
            return "Use the network: its steps are closer on the validation runs."
        if self.use is Use.ANALYTIC:
            return "Use the analytical model: its steps are closer on the validation runs."
        more = f"at least {MIN_RUNS} validation runs" if self.num_val_runs < MIN_RUNS else "more validation runs"
        return f"Too little data to decide: use the analytical model until {more} favor the network."


def verdict_of(errors: pd.DataFrame, num_train_runs: int) -> Verdict:
    """Compare two models on the same steps; a row of errors per recording: run, network and analytic."""
    of_run = errors.groupby("run", sort=True)[["network", "analytic"]].mean()  # [num_runs, 2]
    network, analytic = of_run.mean()
    interval = _interval((of_run["network"] - of_run["analytic"]).to_numpy())
    return Verdict(num_train_runs, len(of_run), float(network), float(analytic), interval)


def step_errors(network: Sequence[StepMiss], analytic: Sequence[StepMiss]) -> pd.DataFrame:
    """Columns run, network and analytic from what both models missed of the same recordings."""
    errors = [np.abs(np.exp([-miss.log_error for miss in misses]) - 1) for misses in (network, analytic)]
    return pd.DataFrame({"run": [miss.run for miss in network], "network": errors[0], "analytic": errors[1]})


def _interval(difference: np.ndarray) -> tuple[float, float]:
    """Percentile bootstrap of the mean over runs [num_runs]; NaN with one run."""
    if len(difference) < 2:
        return float("nan"), float("nan")
    draws = np.random.default_rng(0).integers(0, len(difference), size=(NUM_DRAWS, len(difference)))
    low, high = np.quantile(difference[draws].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _runs(count: int, kind: str) -> str:
    return f"{count} {kind} run{'' if count == 1 else 's'}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _points(share: float) -> str:
    return f"{100 * share:+.1f} points"
