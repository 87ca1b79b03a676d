"""Nonlinear least squares for few parameters, most of them logarithms: Levenberg 1944, Marquardt 1963."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

STEP = 1e-4  # of the difference quotient; parameters are logarithms, so this is a ten-thousandth
LONGEST_STEP, TRIALS = 2.0, 8  # of a parameter; of a larger damping before giving up
CONVERGED = 1e-7  # relative gain of a step


def robust_least_squares(
    residual: Callable[[np.ndarray], np.ndarray], start: np.ndarray, scale: float, steps: int
) -> tuple[np.ndarray, float]:
    """Parameters [p] that minimize sum of scale^2 (sqrt(1 + (r / scale)^2) - 1), and that sum (soft L1)."""
    at, damping = np.array(start, float), 1e-2
    result = residual(at)
    cost = _cost(result, scale)
    for _ in range(steps):
        columns = [(residual(at + STEP * unit) - result) / STEP for unit in np.eye(len(at))]
        slope = np.stack(columns, axis=1)  # [m, p]
        weight = 1.0 / np.sqrt(1.0 + (result / scale) ** 2)  # [m] of iteratively reweighted least squares
        curvature, gradient = slope.T @ (slope * weight[:, None]), slope.T @ (weight * result)
        for _ in range(TRIALS):
            damped = curvature + damping * np.diag(np.diag(curvature) + 1e-9)
            trial = at - np.clip(np.linalg.solve(damped, gradient), -LONGEST_STEP, LONGEST_STEP)
            there = residual(trial)
            if _cost(there, scale) < cost:
                break
            damping *= 4
        else:
            return at, cost
        gain = cost - _cost(there, scale)
        at, result, cost, damping = trial, there, cost - gain, max(damping / 3, 1e-8)
        if gain < CONVERGED * cost:
            break
    return at, cost


def _cost(residual: np.ndarray, scale: float) -> float:
    if np.isinf(scale):
        return float(residual @ residual) / 2.0
    return float(scale**2 * (np.sqrt(1.0 + (residual / scale) ** 2) - 1.0).sum())
