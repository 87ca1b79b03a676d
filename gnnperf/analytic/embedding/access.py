"""How lookups fall on the rows of a table, and what a cache makes of them.

Rows are described in bins of equally likely rows, so that a table of a billion rows is a few hundred numbers. Lookups
are independent of each other (the independent reference model); real ones that come in bursts hit more often: give
their reuse distances instead (`gnnperf.analytic.embedding.counted_access`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

SINGLE_ROWS, NUM_BINS = 32, 160  # the hottest rows stand alone, the rest are in bins of equal ratio
BISECTIONS = 40
LOG_LARGEST = 60.0  # a characteristic time of e^60 lookups is for ever


class Reuse(Protocol):
    """What is known about which rows lookups ask for again."""

    def unique(self, lookups: np.ndarray) -> np.ndarray:
        """Different rows [k] among `lookups` [k]."""
        ...

    def missed(self, lookups: np.ndarray, cache_rows: np.ndarray) -> np.ndarray:
        """Lookups [k] that miss a cache of `cache_rows` [k] that was empty before `lookups` [k] of them."""
        ...


@dataclass(frozen=True)
class Access:
    """Where lookups fall, for k tables.

    Attributes:
        rows: [k, bins] rows in each bin, not always whole.
        probability: [k, bins] that one lookup falls on one given row of the bin; rows x probability sums to 1.
    """

    rows: np.ndarray
    probability: np.ndarray

    def unique(self, lookups: np.ndarray) -> np.ndarray:
        """As `unique_rows`."""
        return unique_rows(self, lookups)

    def missed(self, lookups: np.ndarray, cache_rows: np.ndarray) -> np.ndarray:
        """As `missed_rows`."""
        return missed_rows(self, lookups, cache_rows)


def power_access(num_rows: np.ndarray, skew: np.ndarray) -> Access:
    """Row = floor(num_rows u^skew) with u uniform: the first share x of the rows gets x^(1 / skew) of the lookups.

    Args:
        num_rows: [k] rows of each table.
        skew: [k] 1: uniform; larger: hotter.
    """
    edges = _edges(num_rows)  # [k, bins + 1]
    share = (edges / num_rows[:, None]) ** (1.0 / skew[:, None])  # [k, bins + 1]
    return _binned(np.diff(edges, axis=1), np.diff(share, axis=1))


def zipf_access(num_rows: np.ndarray, exponent: np.ndarray) -> Access:
    """The i-th hottest row is looked up in proportion to i^-exponent (Breslau et al. 1999)."""
    edges = _edges(num_rows)  # [k, bins + 1]
    middle = (edges[:, :-1] + edges[:, 1:] + 1.0) / 2  # [k, bins]
    rows = np.diff(edges, axis=1)
    weight = rows * middle ** -exponent[:, None]
    return _binned(rows, weight / weight.sum(axis=1, keepdims=True))


def unique_rows(access: Access, lookups: np.ndarray) -> np.ndarray:
    """Expected different rows [k] among `lookups` [k]: sum of 1 - (1 - p)^n over rows."""
    never = np.exp(lookups[:, None] * np.log1p(-np.minimum(access.probability, 1.0 - 1e-12)))  # [k, bins]
    return (access.rows * (1.0 - never)).sum(axis=1)


def characteristic_lookups(access: Access, cache_rows: np.ndarray) -> np.ndarray:
    """Lookups T [k] after which a row leaves a least-recently-used cache of `cache_rows` [k].

    The T at which T lookups touch as many rows as fit: sum of 1 - exp(-p T) = cache_rows (Che, Tung, Wang
    2002). Infinite where all rows that are ever looked up fit.
    """
    low, high = np.full(len(cache_rows), -5.0), np.full(len(cache_rows), LOG_LARGEST)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        touched = (access.rows * -np.expm1(-access.probability * np.exp(middle)[:, None])).sum(axis=1)
        fits = touched <= cache_rows
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    touchable = (access.rows * (access.probability > 0)).sum(axis=1)
    return np.where(touchable <= cache_rows, np.inf, np.exp(low))


def hit_share(access: Access, cache_rows: np.ndarray) -> np.ndarray:
    """Share [k] of lookups that hit a warm cache of `cache_rows` [k] (Che, Tung, Wang 2002)."""
    retained = characteristic_lookups(access, cache_rows)  # [k]
    weight = access.rows * access.probability
    return 1.0 - (weight * np.exp(-access.probability * np.minimum(retained, 1e30)[:, None])).sum(axis=1)


def missed_rows(access: Access, lookups: np.ndarray, cache_rows: np.ndarray) -> np.ndarray:
    """Lookups [k] that miss a cache that was empty before `lookups` [k] of them.

    Until the cache is full, after T lookups, only the first lookup of a row misses; from then on it is a warm cache.
    """
    retained = characteristic_lookups(access, cache_rows)  # [k]
    filling = np.minimum(lookups, retained)
    return unique_rows(access, filling) + (lookups - filling) * (1.0 - hit_share(access, cache_rows))


def _edges(num_rows: np.ndarray) -> np.ndarray:
    """[k, bins + 1] from 0 to num_rows."""
    single = np.minimum(np.arange(SINGLE_ROWS + 1.0)[None, :], num_rows[:, None])
    steps = np.linspace(0.0, 1.0, NUM_BINS - SINGLE_ROWS + 1)[1:]  # [bins]
    ratio = np.maximum(num_rows[:, None] / SINGLE_ROWS, 1.0)
    rest = np.minimum(SINGLE_ROWS * ratio**steps, num_rows[:, None])
    return np.concatenate([single, rest], axis=1)


def _binned(rows: np.ndarray, share: np.ndarray) -> Access:
    return Access(rows, np.where(rows > 0, share / np.where(rows > 0, rows, 1.0), 0.0))
