"""Intervals over runs: nodes of one run are not independent, so whole runs are drawn."""

from __future__ import annotations

import numpy as np

from gnnperf.gnn.evaluation.metrics import APE_FLOOR, absolute_percentage_error, is_measured


def gmae_interval(
    predicted_us: np.ndarray, measured_us: np.ndarray, runs: np.ndarray, *, level: float = 0.95,
    num_draws: int = 1000, seed: int = 0,
) -> tuple[float, float]:  # fmt: skip
    """Percentile bootstrap of the GMAE (Efron 1979), runs drawn with replacement.

    Args:
        predicted_us: [num_nodes]; NaN does not count.
        measured_us: [num_nodes]; NaN or 0 does not count.
        runs: [num_nodes] name or number of the run.
        level: share of draws inside.
        num_draws: draws.
        seed: of the draws.

    Returns:
        Lower and upper end; NaN with fewer than two runs.
    """
    use = is_measured(measured_us) & np.isfinite(predicted_us)  # [num_nodes]
    names, run = np.unique(runs[use], return_inverse=True)  # [num_runs], [num used]
    if len(names) < 2:
        return float("nan"), float("nan")
    logs = np.log(np.maximum(absolute_percentage_error(predicted_us[use], measured_us[use]), APE_FLOOR))
    total, count = np.bincount(run, logs), np.bincount(run)  # [num_runs]
    draws = np.random.default_rng(seed).integers(0, len(names), size=(num_draws, len(names)))  # [num_draws, num_runs]
    means = np.exp(total[draws].sum(1) / count[draws].sum(1))  # [num_draws]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
