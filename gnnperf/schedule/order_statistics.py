"""The expected maximum of normal draws: when the last of a group's ranks arrives.

draws of M equal ranks   mean m, deviation s     E max = m + s e(M),  e(2) 0.56, e(8) 1.42, e(128) 2.59, e(16,384) 4.01
Blom 1958: e(M) ~ Phi^-1((M - 0.375) / (M + 0.25)); for large M as sqrt(2 ln M) (Gumbel 1958, extremes).
Here the integrals themselves are taken, for groups whose ranks have unequal means and deviations too:

    E max = a + int_0^inf (1 - F(a + u)) - F(a - u) du,     F(t) = prod Phi((t - m_p) / s_p)^n_p,     a = max m_p
"""

from __future__ import annotations

import math

import numba
import numpy as np

REACH = 9.0  # deviations to either side; beyond it one of 10^18 draws lies
POINTS = 300  # of each side's integral (trapezoids)
ROOT_2 = math.sqrt(2.0)


@numba.njit(cache=True)
def _log_below(t, mean, deviation, count):  # type: ignore[no-untyped-def] # pragma: no cover
    """log F(t): all draws are below t."""
    found = 0.0
    for p in range(len(mean)):
        if deviation[p] > 0.0:
            share = 0.5 * math.erfc(-(t - mean[p]) / (deviation[p] * ROOT_2))
            if share <= 0.0:
                return -np.inf
            found += count[p] * math.log(share)
        elif t < mean[p]:
            return -np.inf
    return found


@numba.njit(cache=True)
def expected_maximum(mean, deviation, count):  # type: ignore[no-untyped-def] # pragma: no cover
    """(expected maximum, its variance) of independent normal draws.

    Args:
        mean: [num_parts] of each kind of draw.
        deviation: [num_parts]; a draw without any is certain.
        count: [num_parts] draws of each kind.
    """
    top, widest = mean.max(), deviation.max()
    if widest <= 0.0:
        return top, 0.0
    width = REACH * widest / POINTS
    first, second = 0.0, 0.0
    for i in range(POINTS + 1):
        u = i * width
        weight = width if 0 < i < POINTS else 0.5 * width
        above = 1.0 - math.exp(_log_below(top + u, mean, deviation, count))
        below = math.exp(_log_below(top - u, mean, deviation, count))
        first += weight * (above - below)
        second += weight * 2.0 * u * (above + below)
    later = max(first, 0.0)
    return top + later, max(second - first * first, 0.0)


def expected_excess(count: int) -> float:
    """E max of `count` standard normal draws."""
    found: float = expected_maximum(np.zeros(1), np.ones(1), np.array([float(count)]))[0]
    return found
