"""Intervals of node latencies: quantiles of log(measured / predicted) on runs that nothing was fitted on, by group.

    device, the source, kind, family, size -> .. kind, family -> .. kind -> .. the source -> none

A node takes the first of these groups that holds enough. Noise of the machine is the larger, the shorter a node is, so
that size (decades of the predicted latency) is part of the finest group. Another device than those of the calibration
has no group: nothing is known of how far predictions for it are off.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import LogHigh, LogLow, Share

# Split conformal bounds: where a further score lies, if it is one more of the same kind.
#
# Of n scores and one more that is exchangeable with them, each place in the order of all n + 1 is as likely for the new
# one. So it is above the k-th largest with probability k / (n + 1), whatever the distribution (Vovk et al. 2005; Lei et
# al. 2018, "Distribution-Free Predictive Inference for Regression").

_ROUNDING = 1e-9  # (n + 1) (1 - level) of 9 and 0.9 is 1


def two_sided(scores: np.ndarray, level: float) -> tuple[float, float]:
    """Bounds of one more signed score, each passed with probability (1 - level) / 2 at most.

    They are infinite where there are too few scores.
    """
    ordered = np.sort(scores)  # [n]
    place = math.floor((len(ordered) + 1) * (1.0 - level) / 2.0 + _ROUNDING)  # counted from either end
    return (float(ordered[place - 1]), float(ordered[-place])) if place else (-math.inf, math.inf)


def one_sided(sizes: np.ndarray, runs: np.ndarray, level: float) -> float:
    """What the size of one more run's score exceeds with probability 1 - level at most; sizes are at least 0.

    Recordings of one run are no further runs: together they count as one (pooling of distributions: Dunn, Wasserman and
    Ramdas 2023, "Distribution-Free Prediction Sets for Two-Layer Hierarchical Models"). `level` is at most
    `attainable(number of runs, level)`.
    """
    _, of_run, recordings = np.unique(runs, return_inverse=True, return_counts=True)  # [n], [num_runs]
    order = np.argsort(sizes, kind="stable")  # [n]
    below = np.cumsum((1.0 / recordings)[of_run[order]])  # [n] runs that lie at or below
    place = int(np.searchsorted(below, level * (len(recordings) + 1) - _ROUNDING))
    return float(sizes[order[place]]) if place < len(order) else math.inf


def attainable(num_runs: int, level: float) -> float:
    """The level that so many runs support: `level`, or that of their largest score."""
    return min(level, num_runs / (num_runs + 1))


MIN_NODES, MIN_RUNS = 100, 5  # of a group: nodes of one run miss together
SIZES_PER_DECADE = 2.0
SEPARATOR = " | "


@dataclass(frozen=True)
class NodeIntervals:
    """What nodes may miss."""

    level: Share  # share of nodes that lie within
    log_bounds: Mapping[str, tuple[LogLow, LogHigh]]  # group -> lower and upper log(measured / predicted)
    devices: tuple[str, ...]  # names of the devices of the calibration

    def bounds_us(self, estimates: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """[num_nodes] lowest and highest latency of an `estimate_table`; NaN without a latency or a group."""
        log_low, log_high = np.full(len(estimates), np.nan), np.full(len(estimates), np.nan)
        for keys in reversed(_groups(estimates)):  # the finest last: it stands
            result = keys.map(self.log_bounds)
            has = result.notna().to_numpy()
            low_high = np.array(result[has].tolist()).reshape(-1, 2)
            log_low[has], log_high[has] = low_high[:, 0], low_high[:, 1]
        latency_us = estimates["predicted_us"].to_numpy(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite: no bound
            return latency_us * np.exp(log_low), latency_us * np.exp(log_high)


def fit_node_intervals(estimates: pd.DataFrame, level: float) -> NodeIntervals:
    """Groups that hold enough nodes of enough runs.

    `estimates` are rows of `estimate_table` of calibration runs, with columns `run` and `measured_us`; nodes that are
    unmeasured or uncovered are left out. `level` is the share of nodes that should lie within.
    """
    known = estimates[(estimates["measured_us"] > 0) & (estimates["predicted_us"] > 0)]
    scores = np.log(known["measured_us"] / known["predicted_us"])
    result: dict[str, tuple[float, float]] = {}
    for keys in _groups(known):
        grouped = pd.DataFrame({"key": keys, "score": scores, "run": known["run"]}).groupby("key", sort=True)
        for key, group in grouped:
            if len(group) >= MIN_NODES and group["run"].nunique() >= MIN_RUNS:
                result[str(key)] = two_sided(group["score"].to_numpy(np.float64), level)
    return NodeIntervals(level, result, tuple(sorted(set(known["device"]))))


def estimate_table(device: str, source: np.ndarray, kind: np.ndarray, family: np.ndarray, predicted_us: np.ndarray
                 ) -> pd.DataFrame:  # fmt: skip
    """One row per node of a prediction for this device; all [num_nodes].

    `kind` is as data.runs.node_kinds, `family` is None or NaN where unknown.
    """
    named = pd.Series(family, dtype=object).fillna("").astype(str)
    return pd.DataFrame({"device": device, "source": np.asarray(source, dtype=object).astype(str), "kind": kind,
                         "family": named, "predicted_us": predicted_us})  # fmt: skip


def _groups(estimates: pd.DataFrame) -> list[pd.Series]:
    """Names of each row's groups, the finest first."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(SIZES_PER_DECADE * np.log10(estimates["predicted_us"])).replace([-np.inf, np.inf], np.nan)
    parts = [estimates["device"], estimates["source"], estimates["kind"], estimates["family"], size.astype(str)]
    named, keys = parts[0].astype(str), []
    for part in parts[1:]:
        named = named + SEPARATOR + part.astype(str)
        keys.append(named)
    return keys[::-1]
