"""Predicted changes next to measured ones: a row per pair, per kind, over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from rich.table import Table

KINDS = ("sleep", "link", "two hosts", "repeat", "slow rank", "table rows", "sequence", "blocking", "overlap", "batch",
         "dtype")  # fmt: skip
ALL = "all"
NOTHING, AGAIN = "nothing", "measured again"
NEAR = 0.15  # error up to which a change counts as given


@dataclass(frozen=True)
class Judged:
    """One pair.

    Attributes:
        kind: of the change.
        a, b: names of the runs.
        a_us, b_us: steps of their recordings without the profiler, [num_repeats] each.
        predicted_us: answer -> predicted change; what has no answer to this kind is not there.
    """

    kind: str
    a: str
    b: str
    a_us: tuple[float, ...]
    b_us: tuple[float, ...]
    predicted_us: Mapping[str, float]

    @property
    def measured_us(self) -> float:
        """The change of the mean over recordings."""
        return float(np.mean(self.b_us) - np.mean(self.a_us))

    @property
    def noise_us(self) -> float:
        """A change of this size may be chance: spreads of the recordings of A and B."""
        return float(np.ptp(self.a_us) + np.ptp(self.b_us))

    @property
    def is_loud(self) -> bool:
        """Whether there is a change to tell, and recordings to tell it from chance."""
        return abs(self.measured_us) > self.noise_us > 0

    def error(self, answer: str) -> float:
        """|predicted - measured| / |measured|; NaN without an answer."""
        if answer == NOTHING:
            return 1.0
        if answer == AGAIN:
            return self.again_error()
        return abs(self.predicted_us.get(answer, np.nan) - self.measured_us) / abs(self.measured_us)

    def signed(self, answer: str) -> float:
        """(predicted - measured) / measured: above 0 where the change is given too large; NaN without an answer."""
        return (self.predicted_us.get(answer, np.nan) - self.measured_us) / self.measured_us

    def again_error(self) -> float:
        """Mean error of the change in one recording of A and of B against that in their others; NaN without others."""
        changes = [
            (self.b_us[j] - self.a_us[i], _mean_without(self.b_us, j) - _mean_without(self.a_us, i))
            for i, j in product(range(len(self.a_us)), range(len(self.b_us)))
        ]
        return float(np.mean([abs(one - others) / abs(others) for one, others in changes]))


def _mean_without(values: Sequence[float], place: int) -> float:
    rest = [value for at, value in enumerate(values) if at != place]
    return float(np.mean(rest)) if rest else float("nan")


def summary(result: Sequence[Judged], answers: Sequence[str]) -> Table:
    """Median error in % of every answer by kind, over loud pairs."""
    table = Table("kind", "pairs", "loud", "sign right", *answers)
    for kind in (*KINDS, ALL):
        group = [one for one in result if kind in (one.kind, ALL)]
        loud = [one for one in group if one.is_loud]
        if group:
            right = sum(one.predicted_us[answers[0]] * one.measured_us > 0 for one in loud)
            medians = [percent(_median([one.error(answer) for one in loud])) for answer in answers]
            table.add_row(kind, str(len(group)), str(len(loud)), f"{right}/{len(loud)}", *medians)
    return table


def spread(result: Sequence[Judged], answers: Sequence[str]) -> Table:
    """Mean, median, p90, maximum and signed bias of every answer over all loud pairs."""
    table = Table("answer", "pairs", "mean", "median", "p90", "max", "bias (median)", f"within {100 * NEAR:.0f} %")
    loud = [one for one in result if one.is_loud]
    for answer in answers:
        errors = np.array([one.error(answer) for one in loud])
        known = errors[~np.isnan(errors)]
        if len(known):
            bias = -1.0 if answer == NOTHING else _median([one.signed(answer) for one in loud])
            tail, near = np.quantile(known, 0.9), np.mean(known <= NEAR)
            figures = (known.mean(), np.median(known), tail, known.max(), bias, near)
            table.add_row(answer, str(len(known)), *map(percent, figures))
    return table


def each(result: Sequence[Judged], answers: Sequence[str]) -> Table:
    """A row per pair, changes in us; a pair that is not loud in brackets."""
    table = Table("kind", "A", "B", "measured us", "noise", *answers)
    for one in result:
        measured = f"{one.measured_us:+.0f}" if one.is_loud else f"({one.measured_us:+.0f})"
        given = [f"{one.predicted_us[answer]:+.0f}" if answer in one.predicted_us else "-" for answer in answers]
        table.add_row(one.kind, one.a, one.b, measured, f"{one.noise_us:.0f}", *given)
    return table


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.median(known)) if known else float("nan")


def percent(share: float) -> str:
    """0.1234 -> 12.3; - for NaN."""
    return "-" if np.isnan(share) else f"{100 * share:.1f}"
