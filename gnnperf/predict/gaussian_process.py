"""What a few measured rows are off by, carried to similar rows as far as it helps.

    log answer = log zero-shot + offset + sum over measured rows of weight x similarity

Similarity falls with the distance of numbers that describe rows (kernel exp(-distance / length)); offset and weights
are those of a Gaussian process whose prior is the zero-shot answer (Rasmussen, Williams 2006, chapter 2). How far it
reaches and how little it trusts a row is chosen by leaving groups of the rows out. Where the best of it is not better
there than zero-shot by a standard error, nothing is changed. Torch is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import InputError

OFFSET_ROWS = 4.0  # so many rows' worth of belief that the offset is 0
FOLDS = 5
LEAST_ROWS = 2 * FOLDS


@dataclass(frozen=True)
class Reach:
    """How measured rows act on others.

    Attributes:
        length: distance (numbers have a spread of 1) over which similarity falls by e.
        doubt: variance of a single row's error over that of what is to be learned; infinite: the offset by itself.
    """

    length: float
    doubt: float


REACHES = (*(Reach(length, doubt) for length in (3.0, 8.0) for doubt in (0.1, 0.5, 2.0)), Reach(1.0, float("inf")))


@dataclass(frozen=True)
class Learned:
    """What rows have taught.

    Attributes:
        places: [k, num_numbers] of the measured rows, scaled.
        weights: [k].
        offset: of the log answer.
        reach: None: nothing is changed.
        mean, spread: [num_numbers] of the scale.
    """

    places: np.ndarray
    weights: np.ndarray
    offset: float
    reach: Reach | None
    mean: np.ndarray
    spread: np.ndarray

    def correction(self, numbers: np.ndarray) -> np.ndarray:
        """[n] to add to log us of rows with these numbers [n, num_numbers]."""
        if self.reach is None:
            return np.zeros(len(numbers))
        there = (numbers - self.mean) / self.spread
        return self.offset + similarity(there, self.places, self.reach.length) @ self.weights


def learn(numbers: np.ndarray, off: np.ndarray, pool: np.ndarray, seed: int) -> Learned:
    """From rows with numbers [k, num_numbers] that are off by [k] in log us.

    Args:
        numbers: of the measured rows.
        off: log(measured / zero-shot).
        pool: [n, num_numbers] of the rows that will be requested.
        seed: of the groups that are left out.
    """
    _, mean, spread = scaled(pool)
    places = (numbers - mean) / spread
    reach = _best_reach(places, off, seed)
    offset, weights = solved(places, off, reach) if reach else (0.0, np.zeros(len(off)))
    return Learned(places, weights, offset, reach, mean, spread)


def choose(numbers: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Places of at most `count` of [n, num_numbers] to measure: those nearest to the centers of k-means (Lloyd 1982).

    Fewer come back where one row is nearest to two centers.

    Raises:
        InputError: there are fewer rows.
    """
    there, _, _ = scaled(numbers)
    if count > len(there):
        raise InputError(f"{count} rows of {len(there)}", where="rows to measure", allowed=f"at most {len(there)}")
    centers = there[np.random.default_rng(seed).choice(len(there), count, replace=False)]
    for _ in range(20):
        nearest = _distances(there, centers).argmin(axis=1)  # [n]
        sums = np.zeros_like(centers)
        np.add.at(sums, nearest, there)
        size = np.bincount(nearest, minlength=count)[:, None]
        centers = np.where(size > 0, sums / np.maximum(size, 1), centers)
    result: np.ndarray = np.unique(_distances(there, centers).argmin(axis=0))
    return result


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
    """[n, num_numbers], [k, num_numbers] -> [n, k]; 1 at a distance of 0."""
    result: np.ndarray = np.exp(-np.sqrt(_distances(left, right)) / length)
    return result


def _best_reach(places: np.ndarray, off: np.ndarray, seed: int) -> Reach | None:
    if len(off) < LEAST_ROWS:
        return None
    group = np.random.default_rng(seed).permutation(len(off)) % FOLDS  # [k]
    left = {reach: _left_out_errors(places, off, reach, group) for reach in REACHES}
    best = min(left, key=lambda reach: float(left[reach].mean()))
    return best if is_better(left[best], np.abs(off)) else None


def is_better(errors: np.ndarray, than: np.ndarray) -> bool:
    """Whether errors [k] are smaller than others of the same rows by a standard error of the difference."""
    gain = than - errors  # [k]
    return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)))


def _left_out_errors(places: np.ndarray, off: np.ndarray, reach: Reach, group: np.ndarray) -> np.ndarray:
    """[k] |log error| of each row by the rows of the other groups."""
    result = np.empty(len(off))
    for out in range(FOLDS):
        here = group == out
        offset, weights = solved(places[~here], off[~here], reach)
        answer = offset + similarity(places[here], places[~here], reach.length) @ weights
        result[here] = np.abs(off[here] - answer)
    return result


def scaled(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values [n, num_numbers] with mean 0 and spread 1; one that never changes is 0."""
    mean, spread = values.mean(axis=0), values.std(axis=0)
    spread = np.where(spread > 1e-9, spread, np.inf)
    return (values - mean) / spread, mean, spread


def _distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[n, k] squared."""
    result = (left**2).sum(axis=1)[:, None] - 2.0 * left @ right.T + (right**2).sum(axis=1)
    return np.maximum(result, 0.0)
