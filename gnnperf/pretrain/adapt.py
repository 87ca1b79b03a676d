"""A few rows of a new GPU correct an answer: what they are off by, carried to similar rows as far as it helps.

    log answer = log zero-shot + offset + sum over measured rows of weight x similarity

Similarity falls with the distance of sizes and ratios (kernel exp(-distance / length)); offset and weights are those of
a Gaussian process whose prior is the zero-shot answer (Rasmussen, Williams 2006, chapter 2). How far it reaches and how
little it trusts a row is chosen by leaving groups of the rows out. Where the best of it is not better there than
zero-shot by a standard error, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnperf.data.numbers import WORK_NAMES
from gnnperf.errors import InputError
from gnnperf.pretrain.encode import EncodedRows

FEATURES = (
    "log_batch", "log_m", "log_n", "log_k", "log_elements", "log_last_dim", "align_m", "align_n", "align_k",
    "log_waves", "wave_efficiency", "log_compute_us", "log_memory_us", "log_base_us",
)  # fmt: skip
COLUMNS = [WORK_NAMES.index(name) for name in FEATURES]
OFFSET_ROWS = 4.0  # so many rows' worth of belief that the offset is 0
FOLDS = 5
LEAST_ROWS = 2 * FOLDS


@dataclass(frozen=True)
class Reach:
    """How measured rows act on others.

    Attributes:
        length: distance (features have a spread of 1) over which similarity falls by e.
        doubt: variance of a single row's error over that of what is to be learned; infinite: the offset alone.
    """

    length: float
    doubt: float


REACHES = (*(Reach(length, doubt) for length in (3.0, 8.0) for doubt in (0.1, 0.5, 2.0)), Reach(1.0, float("inf")))


@dataclass(frozen=True)
class Adapted:
    """Corrections of one GPU and op.

    Attributes:
        places: [k, num_features] of the measured rows, scaled.
        weights: [k].
        offset: of the log answer.
        reach: None: nothing is changed.
        mean, spread: [num_features] of the scale.
    """

    places: np.ndarray
    weights: np.ndarray
    offset: float
    reach: Reach | None
    mean: np.ndarray
    spread: np.ndarray

    def correction(self, rows: EncodedRows) -> np.ndarray:
        """[n] to add to log us."""
        if self.reach is None:
            return np.zeros(len(rows.base_us))
        there = (numbers(rows) - self.mean) / self.spread
        return self.offset + similarity(there, self.places, self.reach.length) @ self.weights


def numbers(rows: EncodedRows) -> np.ndarray:
    """[n, num_features] of FEATURES."""
    return rows.x[:, COLUMNS].numpy().astype(np.float64)


def choose_rows(pool: EncodedRows, count: int, seed: int) -> np.ndarray:
    """Places of at most `count` rows of a pool to measure: those nearest to the centers of k-means (Lloyd 1982).

    Labels play no part. Fewer come back where one row is nearest to two centers.

    Raises:
        InputError: the pool has fewer rows.
    """
    there, _, _ = _scaled(numbers(pool))
    if count > len(there):
        raise InputError(f"{count} rows of {len(there)}", where="rows to measure", allowed=f"at most {len(there)}")
    centers = there[np.random.default_rng(seed).choice(len(there), count, replace=False)]
    for _ in range(20):
        nearest = _distances(there, centers).argmin(axis=1)  # [n]
        sums = np.zeros_like(centers)
        np.add.at(sums, nearest, there)
        size = np.bincount(nearest, minlength=count)[:, None]
        centers = np.where(size > 0, sums / np.maximum(size, 1), centers)
    found: np.ndarray = np.unique(_distances(there, centers).argmin(axis=0))
    return found


def adapt(measured: EncodedRows, zero_shot_log_us: np.ndarray, pool: EncodedRows, seed: int) -> Adapted:
    """Corrections from measured rows.

    Args:
        measured: [k] rows of one op on the new GPU, with labels.
        zero_shot_log_us: [k] answers for them.
        pool: rows of the kind that will be asked about; labels play no part.
        seed: of the groups that are left out.
    """
    _, mean, spread = _scaled(numbers(pool))
    places = (numbers(measured) - mean) / spread
    off = measured.log_label.numpy() - zero_shot_log_us  # [k]
    reach = _best_reach(places, off, seed)
    offset, weights = solved(places, off, reach) if reach else (0.0, np.zeros(len(off)))
    return Adapted(places, weights, offset, reach, mean, spread)


def solved(places: np.ndarray, off: np.ndarray, reach: Reach) -> tuple[float, np.ndarray]:
    """Offset, and weights [k] of what it leaves."""
    count = len(off)
    if np.isinf(reach.doubt):
        return float(off.sum() / (count + OFFSET_ROWS)), np.zeros(count)
    covariance = similarity(places, places, reach.length) + reach.doubt * np.eye(count)
    both = np.linalg.solve(covariance, np.stack([off, np.ones(count)], axis=1))  # [k, 2]
    offset = float(both[:, 0].sum() / both[:, 1].sum() * count / (count + OFFSET_ROWS))
    weights: np.ndarray = both[:, 0] - offset * both[:, 1]
    return offset, weights


def similarity(left: np.ndarray, right: np.ndarray, length: float) -> np.ndarray:
    """[n, num_features], [k, num_features] -> [n, k]; 1 at a distance of 0."""
    found: np.ndarray = np.exp(-np.sqrt(_distances(left, right)) / length)
    return found


def _best_reach(places: np.ndarray, off: np.ndarray, seed: int) -> Reach | None:
    if len(off) < LEAST_ROWS:
        return None
    group = np.random.default_rng(seed).permutation(len(off)) % FOLDS  # [k]
    left = {reach: _left_out_errors(places, off, reach, group) for reach in REACHES}
    best = min(left, key=lambda reach: float(left[reach].mean()))
    gain = np.abs(off) - left[best]  # [k]
    return best if gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)) else None


def _left_out_errors(
    places: np.ndarray, off: np.ndarray, reach: Reach, group: Sequence[int] | np.ndarray
) -> np.ndarray:
    """[k] |log error| of each row by the rows of the other groups."""
    found, group = np.empty(len(off)), np.asarray(group)
    for out in range(FOLDS):
        here = group == out
        offset, weights = solved(places[~here], off[~here], reach)
        answer = offset + similarity(places[here], places[~here], reach.length) @ weights
        found[here] = np.abs(off[here] - answer)
    return found


def _scaled(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values with mean 0 and spread 1; a feature that never changes is 0."""
    mean, spread = values.mean(axis=0), values.std(axis=0)
    spread = np.where(spread > 1e-9, spread, np.inf)
    return (values - mean) / spread, mean, spread


def _distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[n, k] squared."""
    found = (left**2).sum(axis=1)[:, None] - 2.0 * left @ right.T + (right**2).sum(axis=1)
    return np.maximum(found, 0.0)
