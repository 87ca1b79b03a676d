"""Split conformal bounds: where a further score lies, if it is one more of the same kind.

Of n scores and one more that is exchangeable with them, each place in the order of all n + 1 is as likely for the new
one. So it is above the k-th largest with probability k / (n + 1), whatever the distribution (Vovk et al. 2005; Lei et
al. 2018, "Distribution-Free Predictive Inference for Regression").
"""

from __future__ import annotations

import math

import numpy as np

_ROUNDING = 1e-9  # (n + 1) (1 - level) of 9 and 0.9 is 1


def two_sided(scores: np.ndarray, level: float) -> tuple[float, float]:
    """Bounds of one more signed score, each passed with probability (1 - level) / 2 at most.

    Args:
        scores: [n].
        level: 0 to 1.

    Returns:
        the two; infinite where n is too small to tell.
    """
    ordered = np.sort(scores)  # [n]
    place = math.floor((len(ordered) + 1) * (1.0 - level) / 2.0 + _ROUNDING)  # counted from either end
    return (float(ordered[place - 1]), float(ordered[-place])) if place else (-math.inf, math.inf)


def one_sided(sizes: np.ndarray, runs: np.ndarray, level: float) -> float:
    """What the size of one more run's score exceeds with probability 1 - level at most.

    Recordings of one run are no further runs: together they count as one (pooling of distributions: Dunn, Wasserman and
    Ramdas 2023, "Distribution-Free Prediction Sets for Two-Layer Hierarchical Models").

    Args:
        sizes: [n] of scores, at least 0.
        runs: [n] names.
        level: at most `attainable(number of runs, level)`.
    """
    _, of_run, recordings = np.unique(runs, return_inverse=True, return_counts=True)  # [n], [num_runs]
    order = np.argsort(sizes, kind="stable")  # [n]
    below = np.cumsum((1.0 / recordings)[of_run[order]])  # [n] runs that lie at or below
    place = int(np.searchsorted(below, level * (len(recordings) + 1) - _ROUNDING))
    return float(sizes[order[place]]) if place < len(order) else math.inf


def attainable(num_runs: int, level: float) -> float:
    """The level that so many runs can tell: `level`, or that of their largest score."""
    return min(level, num_runs / (num_runs + 1))
