"""Fits of positive constants by their logarithms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnnperf.analytic.least_squares import robust_least_squares

LOG_STEPS, PRIOR_WEIGHT = 80, 0.03


def fit_logs(
    residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray, prior_weight: float = PRIOR_WEIGHT
) -> np.ndarray:
    """Positive values [k] that minimize mean residual^2 + prior_weight^2 |log(values / start)|^2."""
    origin = np.log(start)

    def all_residuals(x: np.ndarray) -> np.ndarray:
        result = residuals(np.exp(x))
        return np.concatenate([result / np.sqrt(len(result)), prior_weight * (x - origin)])

    return np.exp(robust_least_squares(all_residuals, origin, np.inf, LOG_STEPS)[0])


def softened(residuals: np.ndarray, scale: float) -> np.ndarray:
    """Residuals [n] whose squares are the pseudo-Huber loss: quadratic below `scale`, linear beyond (Charbonnier 1994).

    A measurement that something disturbed then pulls no harder the further off it is.
    """
    return np.sign(residuals) * scale * np.sqrt(2.0 * (np.sqrt(1.0 + (residuals / scale) ** 2) - 1.0))
