"""Fit intervals of devices without calibration: what predictions missed on left-out devices may be missed again.

    generation left out       A     B     C           scores of each: log(measured / predicted without it), by group
    its quantiles             |-a-| |-b-| |-c-|
    bounds                    where those of one more generation are expected to lie: mean of the lower ones less
                              t x deviation x root of (1 + 1 / generations), and likewise above

Rows of one device miss together, so that many rows of devices that trained are little evidence for another
one, however they are weighted (BENCHMARKS.md); what counts is how far generations differ.
t is Student's, one-sided, for GENERATION_LEVEL.
"""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import write_text
from gnnperf.gnn.intervals.devices import SEPARATOR, DeviceIntervals
from gnnperf.gnn.intervals.nodes import two_sided
from gnnperf.hardware import yaml_text

LEAST_GENERATIONS = 3
GENERATION_LEVEL = 0.9  # of generations whose quantile lies within, on each side


def fit_device_intervals(held_out: pd.DataFrame, level: float, pooled: float | None = None) -> DeviceIntervals:
    """Groups with rows of at least LEAST_GENERATIONS generations; families with rows in several dtypes.

    `held_out` has columns generation, family, dtype, score = log(measured / predicted without the generation); `level`
    of them should lie within. The deviation of each group is moderated by `pooled`, that between generations.
    """
    result: dict[str, tuple[float, float]] = {}
    for keys in (held_out["family"], held_out["family"] + SEPARATOR + held_out["dtype"]):
        for key, rows in held_out.groupby(keys.astype(str), sort=True):
            generation = rows["generation"].to_numpy(str)
            given = SEPARATOR in str(key) or len(set(rows["dtype"])) > 1  # one dtype is no evidence for another
            if given and len(set(generation)) >= LEAST_GENERATIONS:
                result[str(key)] = expected_bounds(rows["score"].to_numpy(float), generation, level, pooled)
    return DeviceIntervals(level, result, tuple(sorted(set(held_out["generation"].astype(str)))))


def pooled_deviation(held_out: pd.DataFrame, level: float) -> float:
    """Root mean square over groups of the deviation between generations of their quantiles."""
    groups = [generation_quantiles(rows["score"].to_numpy(float), rows["generation"].to_numpy(str), level)
              for _, rows in held_out.groupby(["family", "dtype"])]  # fmt: skip
    deviations = [each.std(axis=0, ddof=1) for each in groups if len(each) >= LEAST_GENERATIONS]
    return float(np.sqrt(np.mean(np.square(deviations))))


def expected_bounds(
    scores: np.ndarray, generation: np.ndarray, level: float, pooled: float | None = None
) -> tuple[float, float]:
    """Where quantiles of one more generation are expected, from scores [n] of generations [n]; one gives none.

    Few generations show little of how far they differ: `pooled` counts as much as their own variance, with as many
    degrees of freedom (moderated variances, Smyth 2004, https://doi.org/10.2202/1544-6115.1027).
    """
    each = generation_quantiles(scores, generation, level)  # [num_generations, 2]
    count = len(each)
    if count < 2:
        return -np.inf, np.inf
    deviation, freedom = each.std(axis=0, ddof=1), count - 1
    if pooled is not None:
        deviation, freedom = np.sqrt((deviation**2 + pooled**2) / 2.0), 2 * freedom
    reach = student_quantile(GENERATION_LEVEL, freedom) * np.sqrt(1.0 + 1.0 / count)
    low, high = each.mean(axis=0) + reach * deviation * np.array([-1.0, 1.0])
    return float(low), float(high)


def student_quantile(level: float, freedom: int) -> float:
    """What Student's t with so many degrees of freedom exceeds with probability 1 - level.

    t = root(freedom) tan(angle) has the density cos(angle)^(freedom - 1), which is summed up.
    """
    angle = np.linspace(-np.pi / 2, np.pi / 2, 20_001)
    density = np.cos(angle) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return float(np.sqrt(freedom) * np.tan(np.interp(level, below / below[-1], angle)))


def generation_quantiles(scores: np.ndarray, generation: np.ndarray, level: float) -> np.ndarray:
    """[num_generations, 2] lower and upper bounds of each generation's own scores."""
    parts = (scores[generation == name] for name in np.unique(generation.astype(str)))
    return np.array([two_sided(part, level) for part in parts])


def save_device_intervals(result: DeviceIntervals, path: Path) -> None:
    """Write intervals as YAML: next to `path`, then renamed."""
    values = asdict(result)
    bounds = {group: [round(value, 4) for value in pair] for group, pair in result.log_bounds.items()}
    write_text(path, yaml_text({"provenance": values.pop("provenance"), **values, "log_bounds": bounds}, flow=None))
