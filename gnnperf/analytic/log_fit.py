"""Few positive constants from many measurements: damped least squares on logarithms, with a weak prior at the start."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

STEP, MAX_STEPS, MAX_DAMPING, LARGEST_MOVE, TOLERANCE = 1e-4, 80, 1e10, 1.0, 1e-6
PRIOR_WEIGHT = 0.03


def fit_logs(
    residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray, prior_weight: float = PRIOR_WEIGHT
) -> np.ndarray:
    """Values [k] that minimize mean residual^2 + prior_weight^2 |log(values / start)|^2 (Levenberg, Marquardt).

    Args:
        residuals: values [k] -> residuals [n], e.g. log(predicted / measured).
        start: [k] positive.
        prior_weight: keeps a constant that the measurements do not tell where it started.
    """
    origin = np.log(start)

    def all_residuals(x: np.ndarray) -> np.ndarray:
        found = residuals(np.exp(x))
        return np.concatenate([found / np.sqrt(len(found)), prior_weight * (x - origin)])

    x, damping = origin.copy(), 1e-2
    now = all_residuals(x)
    for _ in range(MAX_STEPS):
        slopes = np.stack([(all_residuals(x + STEP * unit) - now) / STEP for unit in np.eye(len(x))], axis=1)
        moved, after, damping = _step(all_residuals, x, now, slopes, damping)
        gain = now @ now - after @ after
        x, now, damping = moved, after, max(damping / 5, 1e-8)
        if gain <= TOLERANCE * (now @ now):
            break
    return np.exp(x)


def softened(residuals: np.ndarray, scale: float) -> np.ndarray:
    """Residuals [n] whose squares are the pseudo-Huber loss: quadratic below `scale`, linear beyond (Charbonnier 1994).

    A measurement that something disturbed then pulls no harder the further off it is.
    """
    return np.sign(residuals) * scale * np.sqrt(2.0 * (np.sqrt(1.0 + (residuals / scale) ** 2) - 1.0))


def _step(
    all_residuals: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    now: np.ndarray,
    slopes: np.ndarray,
    damping: float,
) -> tuple[np.ndarray, np.ndarray, float]:
    """The first damped step that improves; `x` itself where none does."""
    normal, gradient = slopes.T @ slopes, slopes.T @ now
    while damping < MAX_DAMPING:
        step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), gradient)
        moved = x + np.clip(step, -LARGEST_MOVE, LARGEST_MOVE)
        after = all_residuals(moved)
        if after @ after < now @ now:
            return moved, after, damping
        damping *= 4
    return x, now, damping
