"""Access to embedding tables as it was counted: from how often rows were requested, or how soon again.

A histogram says how many rows a batch asks for once, twice, 3 to 4 times, ... (powers of two). Rates behind such counts
are a mixture: a row with rate r is requested Poisson(r) times in a batch. The mixture on a grid of rates that makes the
histogram most likely (with the rows never requested, whose number is known, as its zero) is found by expectation
maximization (Laird 1978, nonparametric maximum likelihood; Efron and Thisted 1976 read rates off counts in the same
way). To take the counts themselves for rates would make rows that were requested once by chance look hot.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf

import numpy as np

from gnnperf.analytic.embedding.model import Access

NUM_RATES, STEPS = 96, 400
LEAST_RATE_SHARE = 0.05  # the grid begins at that share of the mean rate of a row
EXACT_COUNTS = 64  # Poisson probabilities of counts above come from the normal distribution
TINY = 1e-300


@dataclass(frozen=True)
class ReuseDistances:
    """Lookups by the number of different rows that were requested since their row was, itself included.

    A cache of n rows that replaces the least recently used one hits where that number is n at most (Mattson et al.
    1970: a stack algorithm), whatever bursts and drifts the lookups have.

    Attributes:
        rows: [n] distances; infinite: the row was never requested before.
        lookups: [n] at each distance.
    """

    rows: np.ndarray
    lookups: np.ndarray

    def unique(self, lookups: np.ndarray) -> np.ndarray:
        """Different rows [k] among `lookups` [k]: those that were never requested before."""
        return lookups * (1.0 - self._share(np.array([np.inf]), strictly=True))

    def missed(self, lookups: np.ndarray, cache_rows: np.ndarray) -> np.ndarray:
        """Lookups [k] that miss a cache of `cache_rows` [k]."""
        return lookups * (1.0 - self._share(cache_rows, strictly=False))

    def _share(self, within: np.ndarray, strictly: bool) -> np.ndarray:
        near = self.rows[None, :] < within[:, None] if strictly else self.rows[None, :] <= within[:, None]  # [k, n]
        return (near * self.lookups).sum(axis=1) / self.lookups.sum()


def counted_access(num_rows: float, reuse_histogram: np.ndarray, lookups: float) -> Access:
    """One table's access.

    Args:
        num_rows: of the table.
        reuse_histogram: [bins] rows that a batch asks for once, twice, 3 to 4, 5 to 8, ... times; means over batches.
        lookups: of a batch.
    """
    counts = np.append(max(num_rows - reuse_histogram.sum(), 0.0), reuse_histogram).astype(float)  # [1 + bins]
    rates = np.geomspace(LEAST_RATE_SHARE * lookups / num_rows, most_rate(reuse_histogram), NUM_RATES)
    rates = np.append(0.0, rates)  # [rates] lookups of a row in a batch
    likely = _bin_probability(rates, len(reuse_histogram))  # [rates, 1 + bins]
    share = np.full(len(rates), 1.0 / len(rates))  # [rates] of the rows
    for _ in range(STEPS):
        joint = share[:, None] * likely  # [rates, 1 + bins]
        share = (joint / np.maximum(joint.sum(axis=0), TINY) * counts).sum(axis=1) / counts.sum()
    rows = share * num_rows
    return Access(rows[None, :], (rates / (rows @ rates))[None, :])


def most_rate(reuse_histogram: np.ndarray) -> float:
    """The largest count of the last bin that holds rows."""
    return float(2.0 ** np.flatnonzero(reuse_histogram).max())


def _edges(bins: int) -> np.ndarray:
    """[bins + 1] the largest count below each bin, and of the last: 0, 1, 2, 4, 8, ..."""
    return np.append(0.0, 2.0 ** np.arange(bins))


def _bin_probability(rates: np.ndarray, bins: int) -> np.ndarray:
    """[rates, 1 + bins] that a row of each rate is requested never, once, twice, 3 to 4 times, ...; beyond is last."""
    below = np.stack([_at_most(rates, edge) for edge in _edges(bins)], axis=1)  # [rates, bins + 1]
    below[:, -1] = 1.0
    return np.diff(below, axis=1, prepend=0.0)


def _at_most(rates: np.ndarray, count: float) -> np.ndarray:
    """[rates] probability of Poisson(rate) <= count."""
    if count > EXACT_COUNTS:
        spread = np.sqrt(2.0 * np.maximum(rates, TINY))
        return np.array([0.5 * (1.0 + erf(z)) for z in (count + 0.5 - rates) / spread])
    term = np.exp(-rates)  # of 0
    total = term.copy()
    for k in range(1, int(count) + 1):
        term = term * rates / k
        total += term
    return np.minimum(total, 1.0)
