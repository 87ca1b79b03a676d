"""Bounds whose scores count by weights: rivals of what ships, for `research.benchmarks.generations`."""

from __future__ import annotations

import math

import numpy as np

_ROUNDING = 1e-9  # (n + 1) (1 - level) of 9 and 0.9 is 1


def weighted_two_sided(scores: np.ndarray, weights: np.ndarray, own: float, level: float) -> tuple[float, float]:
    """Two-sided bounds where scores count by weights (Tibshirani et al. 2019).

    Args:
        scores: [n].
        weights: [n] how likely the requested case is among cases like each.
        own: weight of the requested case, which may lie anywhere; 0: as each of the others.
        level: 0 to 1.

    Returns:
        the two; infinite where the weights cannot tell.
    """
    order = np.argsort(scores, kind="stable")
    ordered, weight = scores[order], weights[order]  # [n]
    out_of_range = (weight.sum() + own) * (1.0 - level) / 2.0 + _ROUNDING
    low, high = _last_within(weight, own, out_of_range), _last_within(weight[::-1], own, out_of_range)
    return (float(ordered[low]) if low >= 0 else -math.inf, float(ordered[::-1][high]) if high >= 0 else math.inf)


def _last_within(weight: np.ndarray, own: float, out_of_range: float) -> int:
    """Place of the last score [n], from an end, below which no more than so much weight lies; -1 none."""
    below = np.cumsum(weight) - weight + np.maximum(own, weight)  # [n]
    return int(np.argmax(np.append(below, np.inf) > out_of_range)) - 1


def pooled_bounds(scores: np.ndarray, generation: np.ndarray, level: float) -> tuple[float, float]:
    """Quantiles of scores [n] in which every generation [n] counts the same."""
    _, of, rows = np.unique(generation.astype(str), return_inverse=True, return_counts=True)
    return weighted_two_sided(scores, 1.0 / rows[of], 0.0, level)
