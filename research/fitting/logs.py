"""Nonlinear least squares for few parameters, most of them logarithms (Levenberg 1944, Marquardt 1963)."""

from collections.abc import Callable

import numpy as np

LOG_STEPS, PRIOR_WEIGHT = 80, 0.03
STEP = 1e-4  # of the difference quotient; parameters are logarithms, so this is a ten-thousandth
LONGEST_STEP, TRIALS = 2.0, 8  # of a parameter; of a larger damping before giving up
CONVERGED = 1e-7  # relative gain of a step


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
