"""Ways to bound answers on a GPU without calibration, for `research.benchmarks.generations`.

split      quantiles of scores on GPUs that trained, of rows that did not
weighted   the same, rows by how likely they are among the requested rows (Tibshirani et al. 2019), by a classifier
devices    quantiles of scores on generations that were left out, each counting the same
widest     the lowest lower and the highest upper quantile of any generation that was left out
expected   where the quantiles of one more generation are expected (gnnperf.gnn.intervals.devices)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import lightgbm
import numpy as np
import pandas as pd

from gnnperf.gnn import LEVEL
from gnnperf.gnn.intervals.devices import expected_bounds, generation_quantiles
from gnnperf.gnn.intervals.nodes import two_sided
from research.baselines.trees import FIXED
from research.benchmarks._generation_answers import DENSITY, GROUP
from research.benchmarks._weighted_bounds import pooled_bounds, weighted_two_sided
from research.pretraining.rows import GENERATION

ROUNDS, LEAVES, LIKELIEST = 60, 8, 20.0  # of the classifier; most that a row counts
Bounds = tuple[np.ndarray, np.ndarray]
Way = Callable[[pd.DataFrame, pd.DataFrame, pd.DataFrame], Bounds]


def bounds(way: str, seen: pd.DataFrame, left_out: pd.DataFrame, requested: pd.DataFrame) -> Bounds:
    """[n] lower and upper log(measured / given) of the requested rows, by group.

    Args:
        way: of WAYS.
        seen: rows of GPUs that trained, columns score, group and DENSITY.
        left_out: rows of generations that were left out before, likewise, and generation.
        requested: [n] rows.
    """
    low, high = np.full(len(requested), -np.inf), np.full(len(requested), np.inf)
    for group, places in requested.groupby(GROUP).indices.items():
        ours, theirs = (rows[rows[GROUP] == group] for rows in (seen, left_out))
        low[places], high[places] = WAYS[way](ours, theirs, requested.iloc[places])
    return low, high


def _split(seen: pd.DataFrame, left_out: pd.DataFrame, requested: pd.DataFrame) -> Bounds:
    return _everywhere(two_sided(seen["score"].to_numpy(), LEVEL), requested)


def _weighted(seen: pd.DataFrame, left_out: pd.DataFrame, requested: pd.DataFrame) -> Bounds:
    of_seen, of_requested = _likelihoods(seen, requested)
    scores = seen["score"].to_numpy()
    result = np.array([weighted_two_sided(scores, of_seen, own, LEVEL) for own in of_requested])
    return result[:, 0], result[:, 1]


def _devices(seen: pd.DataFrame, left_out: pd.DataFrame, requested: pd.DataFrame) -> Bounds:
    return _everywhere(pooled_bounds(*_scores(left_out), LEVEL), requested)


def _widest(seen: pd.DataFrame, left_out: pd.DataFrame, requested: pd.DataFrame) -> Bounds:
    every = generation_quantiles(*_scores(left_out), LEVEL)
    return _everywhere((every[:, 0].min(), every[:, 1].max()), requested)


def _expected(seen: pd.DataFrame, left_out: pd.DataFrame, requested: pd.DataFrame) -> Bounds:
    return _everywhere(expected_bounds(*_scores(left_out), LEVEL), requested)


def _scores(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    return rows["score"].to_numpy(), rows[GENERATION].to_numpy(str)


def _everywhere(pair: tuple[float, float], requested: pd.DataFrame) -> Bounds:
    return np.full(len(requested), pair[0]), np.full(len(requested), pair[1])


WAYS: Mapping[str, Way] = {
    "split": _split, "weighted": _weighted, "devices": _devices, "widest": _widest, "expected": _expected,
}  # fmt: skip


def _likelihoods(seen: pd.DataFrame, requested: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """How likely rows are among those requested over among those seen, of both tables."""
    x = np.concatenate([seen[list(DENSITY)].to_numpy(float), requested[list(DENSITY)].to_numpy(float)])
    is_requested = np.r_[np.zeros(len(seen)), np.ones(len(requested))]
    settings = {**FIXED, "objective": "binary", "num_leaves": LEAVES, "learning_rate": 0.1, "seed": 0}
    booster = lightgbm.train(settings, lightgbm.Dataset(x, is_requested, params=dict(FIXED)), ROUNDS)
    share = np.clip(np.asarray(booster.predict(x, num_threads=1)), 1e-6, 1 - 1e-6)
    ratio = np.minimum(share / (1 - share) * len(seen) / len(requested), LIKELIEST)
    return ratio[: len(seen)], ratio[len(seen) :]
