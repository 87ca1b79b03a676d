"""The interval in which another calibration of the same machine is expected to land.

Each round is a process of its own (pages, code and heap lie elsewhere) and gives one median per point. Their spread,
not the spread of samples inside a process, is what a second calibration will see. With y = log of the R medians:

    center      exp(median(y))
    sd          the standard deviation of y, at least the typical one of its kind: five rounds that happen to agree
                say little about one point, but hundreds of points say what rounds do to such points
    half width  t(R - 1, 97.5 %) * sqrt(pi / 2) * sd * sqrt(2 / R)

sqrt(pi / 2 / R) is the standard error of a median of R normal values over their sd; sqrt(2), because the other
calibration's median errs as much as this one's. Steady drift that takes longer than one calibration is not in it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

# Student's t, two-sided 95 %, by degrees of freedom; between entries the next smaller holds (wider, so safe).
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
         12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980}  # fmt: skip
MEDIAN_ERROR = math.sqrt(math.pi / 2)
K = TypeVar("K", bound=Hashable)
CLOCK_US = 0.05  # what two readings of the host's clock cost and resolve


@dataclass(frozen=True)
class Interval:
    """A value and where a repeat of its measurement is expected (95 %), in the value's unit."""

    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether `value` lies inside, ends included."""
        return self.low <= value <= self.high


def t_975(degrees: int) -> float:
    """Student's t at 97.5 %."""
    return T_975[max(d for d in T_975 if d <= max(degrees, 1))]


def log_sd(medians: Sequence[float]) -> float:
    """Standard deviation of the logarithms; NaN for fewer than two."""
    return statistics.stdev(map(math.log, medians)) if len(medians) > 1 else math.nan


def interval_of(medians: Sequence[float], least_log_sd: float = 0.0) -> Interval:
    """Over the medians of R >= 2 rounds; see above.

    Args:
        medians: [R] positive, one per round.
        least_log_sd: typical log_sd of points of this kind.
    """
    if len(medians) < 2:
        raise ValueError(f"{len(medians)} round has no spread")
    center = math.exp(statistics.median(map(math.log, medians)))
    half = t_975(len(medians) - 1) * MEDIAN_ERROR * max(log_sd(medians), least_log_sd) * math.sqrt(2 / len(medians))
    return Interval(center, center * math.exp(-half), center * math.exp(half))


def widened(interval: Interval, by: float) -> Interval:
    """The interval with `by` (the clock's resolution, in the value's unit) on both sides; low stays positive."""
    return Interval(interval.value, max(interval.low - by, interval.low / 2), interval.high + by)


def intervals(medians: Mapping[K, Sequence[float]], kinds: Mapping[K, Hashable]) -> dict[K, Interval]:
    """Intervals of many points; each is at least as wide as is typical (median) of its kind.

    Args:
        medians: point -> [R] us, one per round.
        kinds: point -> its kind.
    """
    spreads: dict[Hashable, list[float]] = defaultdict(list)
    for key, values in medians.items():
        spreads[kinds[key]].append(log_sd(values))
    typical = {kind: statistics.median(values) for kind, values in spreads.items()}
    return {key: widened(interval_of(values, typical[kinds[key]]), CLOCK_US) for key, values in medians.items()}
