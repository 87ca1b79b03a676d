"""Trials by kind of change, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from research.evaluation.interventions import LeftOut, Trial
from research.evaluation.pairs import Change
from research.evaluation.run_sums import Statistic, interval_over_groups

ALL, WITHOUT_SLEEP = "all", "all without sleep"
NO_CHANGE_ERROR = 1.0  # |0 - measured| / |measured|


@dataclass(frozen=True)
class KindSummary:
    """Errors of the change over trials of one kind; NaN without any.

    Attributes:
        kind: of change, or which of them.
        pairs, trials: how many; a pair is tried in both directions and from several repeats.
        error_median, error_p90: of |predicted - measured| / |measured|; the interval is over pairs.
        error_low, error_high: 95 % interval of the median.
        above_noise: trials whose measured change exceeds the noise floor.
        error_median_above_noise: of these.
        sign_right: share of these with the right sign; sign_low, sign_high its 95 % interval over pairs.
        no_change_error: of the answer "nothing changes".
        summed_error_median: of the answer without a graph: what the edit adds, summed, divided among the ranks.
        remeasured_error_median: of a second measurement as the answer: the noise of the change itself.
        touched_share: median share of a graph's time that is in touched nodes.
    """

    kind: str
    pairs: int
    trials: int
    error_median: float
    error_low: float
    error_high: float
    error_p90: float
    above_noise: int
    error_median_above_noise: float
    sign_right: float
    sign_low: float
    sign_high: float
    no_change_error: float
    summed_error_median: float
    remeasured_error_median: float
    touched_share: float


def summarize_trials(trials: Sequence[Trial]) -> list[KindSummary]:
    """One row per kind, then all of them, then all but the sleeps."""
    rows = [_summary(kind, [t for t in trials if t.kind == kind]) for kind in Change]
    rows.append(_summary(ALL, trials))
    rows.append(_summary(WITHOUT_SLEEP, [t for t in trials if t.kind != Change.SLEEP]))
    return [row for row in rows if row.trials]


def document(trials: Sequence[Trial], left_out: Sequence[LeftOut]) -> dict[str, object]:
    """Everything, as JSON values; NaN becomes null."""
    return {
        "summary": [_plain(asdict(row)) for row in summarize_trials(trials)],
        "trials": [
            _plain({**asdict(t), "error": t.error, "above_noise": t.above_noise, "sign_right": t.sign_right})
            for t in trials
        ],
        "left_out": [{"a": o.pair.a, "b": o.pair.b, "kind": str(o.pair.change), "reason": o.reason} for o in left_out],
    }


def _plain(row: dict[str, object]) -> dict[str, object]:
    return {key: None if isinstance(value, float) and np.isnan(value) else value for key, value in row.items()}


def _summary(kind: str, trials: Sequence[Trial]) -> KindSummary:
    table = pd.DataFrame({
        "pair": [t.pair for t in trials], "error": [t.error for t in trials],
        "summed": [t.summed_error for t in trials], "remeasured": [t.remeasured_error for t in trials],
        "loud": [t.above_noise for t in trials],
        "right": [float(t.sign_right) for t in trials], "touched": [t.touched_share for t in trials],
    })  # fmt: skip
    loud = table[table["loud"].astype(bool)]
    error_low, error_high = _interval(table, "error", _median)
    sign_low, sign_high = _interval(loud, "right", _mean)
    return KindSummary(
        kind=kind, pairs=table["pair"].nunique(), trials=len(table),
        error_median=_median(table["error"]), error_low=error_low, error_high=error_high,
        error_p90=float(table["error"].quantile(0.9)), above_noise=len(loud),
        error_median_above_noise=_median(loud["error"]),
        sign_right=_mean(loud["right"]), sign_low=sign_low, sign_high=sign_high,
        no_change_error=NO_CHANGE_ERROR, summed_error_median=_median(table["summed"]),
        remeasured_error_median=_median(table["remeasured"]),
        touched_share=_median(table["touched"]),
    )  # fmt: skip


def _interval(table: pd.DataFrame, column: str, statistic: Statistic) -> tuple[float, float]:
    return interval_over_groups(table[column].to_numpy(np.float64), table["pair"].to_numpy(), statistic)


def _median(values: np.ndarray | pd.Series) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _mean(values: np.ndarray | pd.Series) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
