"""Bootstrap intervals of any statistic over groups: what is recorded together is drawn together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Statistic = Callable[[np.ndarray], float]


def interval_over_groups(
    values: np.ndarray, groups: np.ndarray, statistic: Statistic, *, level: float = 0.95, num_draws: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:  # fmt: skip
    """Percentile bootstrap (Efron 1979), groups drawn with replacement.

    Args:
        values: [n]; NaN does not count.
        groups: [n] name or number of the run or pair.
        statistic: of the values that count.
        level: share of draws inside.
        num_draws: draws.
        seed: of the draws.

    Returns:
        Lower and upper end; NaN with fewer than two groups.
    """
    use = ~np.isnan(values)
    names, group = np.unique(groups[use], return_inverse=True)
    if len(names) < 2:
        return float("nan"), float("nan")
    parts = [values[use][group == number] for number in range(len(names))]
    draws = np.random.default_rng(seed).integers(0, len(names), size=(num_draws, len(names)))
    found = [statistic(np.concatenate([parts[number] for number in draw])) for draw in draws]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
