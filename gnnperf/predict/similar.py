"""What measured calls say about similar ones of the same step: a few measurements correct the predictions for the rest.

    kernels of one op family and dtype       measured, base prediction          ->  off by log(measured / base)
                                             not measured                   ->  base x exp(correction)

    correction = offset + sum over measured rows of weight x exp(-distance / length)

Offset and weights are those of a Gaussian process whose prior is the base (Rasmussen, Williams 2006, chapter 2). Its
length and noise are chosen by leaving groups of rows out. A family with fewer than LEAST_ROWS measured calls, or whose
measurements do not improve the left-out ones by a standard error, keeps its base. Torch is not needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType
from gnnperf.graph import ExecutionGraph, Prediction, Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.measured import MeasuredPredictor, tensor_shapes
from gnnperf.predict.predictors import merge

OFFSET_ROWS = 4.0  # so many rows' worth of belief that the offset is 0
FOLDS = 5
LEAST_ROWS = 2 * FOLDS


@dataclass(frozen=True)
class Reach:
    """How measured rows act on others."""

    length: float  # distance (numbers have a spread of 1) over which similarity falls by e
    doubt: float  # variance of a single row's error over that of what is to be learned; infinite: the offset by itself


REACHES = (*(Reach(length, doubt) for length in (3.0, 8.0) for doubt in (0.1, 0.5, 2.0)), Reach(1.0, float("inf")))


def corrections(numbers: np.ndarray, off: np.ndarray, pool: np.ndarray, seed: int) -> np.ndarray | None:
    """[n] what measured rows add to the log us of all; None: they are too few, or do not help.

    `numbers` [k, num_numbers] and `off` [k], log(measured / zero-shot), are of the measured rows, `pool`
    [n, num_numbers] of all rows. The seed draws the groups that are left out.
    """
    there, mean, spread = scaled(pool)
    places = (numbers - mean) / spread
    reach = _best_reach(places, off, seed)
    if reach is None:
        return None
    offset, weights = solved(places, off, reach)
    return offset + similarity(there, places, reach.length) @ weights


def choose(numbers: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Places of at most `count` of [n, num_numbers] to measure: those nearest to the centers of k-means (Lloyd 1982).

    Fewer come back where one row is nearest to two centers.
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
    return np.unique(_distances(there, centers).argmin(axis=0))


def solved(places: np.ndarray, off: np.ndarray, reach: Reach) -> tuple[float, np.ndarray]:
    """Offset, and weights [k] of what it leaves."""
    count = len(off)
    if np.isinf(reach.doubt):
        return float(off.sum() / (count + OFFSET_ROWS)), np.zeros(count)
    covariance = similarity(places, places, reach.length) + reach.doubt * np.eye(count)
    both = np.linalg.solve(covariance, np.stack([off, np.ones(count)], axis=1))  # [k, 2]
    offset = float(both[:, 0].sum() / both[:, 1].sum() * count / (count + OFFSET_ROWS))
    return offset, both[:, 0] - offset * both[:, 1]


def similarity(left: np.ndarray, right: np.ndarray, length: float) -> np.ndarray:
    """[n, num_numbers], [k, num_numbers] -> [n, k]; 1 at a distance of 0."""
    return np.exp(-np.sqrt(_distances(left, right)) / length)


def _best_reach(places: np.ndarray, off: np.ndarray, seed: int) -> Reach | None:
    if len(off) < LEAST_ROWS:
        return None
    group = np.random.default_rng(seed).permutation(len(off)) % FOLDS  # [k]
    left = {reach: _left_out_errors(places, off, reach, group) for reach in REACHES}
    best = min(left, key=lambda reach: float(left[reach].mean()))
    gain = np.abs(off) - left[best]  # [k]; smaller errors by a standard error of the difference
    return best if gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)) else None


def _left_out_errors(places: np.ndarray, off: np.ndarray, reach: Reach, group: np.ndarray) -> np.ndarray:
    """[k] |log error| of each row by the rows of the other groups."""
    result = np.empty(len(off))
    for out in range(FOLDS):
        here = group == out
        offset, weights = solved(places[~here], off[~here], reach)
        estimate = offset + similarity(places[here], places[~here], reach.length) @ weights
        result[here] = np.abs(off[here] - estimate)
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


SEED = 0
CALL = ["op_name", "input_dims", "dtype"]
ALIKE = ["family", "dtype"]
REASON = "corrected as {count} measured calls of its family and dtype were off"


@dataclass(frozen=True)
class SimilarPredictor:
    """Measured calls are taken as measured, and correct the base's predictions for calls like them."""

    measured: MeasuredPredictor  # the table
    base: Predictor  # predicts all other nodes

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Both, and the base corrected. Raises InputError: the table was measured on another device."""
        known, base = self.measured.predict(graph, cluster), self.base.predict(graph, cluster)
        factor, count = factors(graph.nodes, known.latency_us, base.latency_us)
        return merge([known, _corrected(base, factor, count)])


def factors(nodes: pd.DataFrame, measured_us: np.ndarray, base_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[num_nodes] what to multiply the base's predictions by, and the number of measured calls (0: none do).

    NaN in `measured_us` [num_nodes] and `base_us` [num_nodes]: not measured, no prediction.
    """
    factor, count = np.ones(len(nodes)), np.zeros(len(nodes), dtype=int)
    for places in families(nodes, base_us):
        numbers = call_numbers(nodes.iloc[places], base_us[places])
        known = np.isfinite(measured_us[places])
        _, first = np.unique(numbers[known], axis=0, return_index=True)  # each call counts once
        if len(first) < LEAST_ROWS:
            continue
        off = np.log(measured_us[places] / base_us[places])[known][first]
        correction = corrections(numbers[known][first], off, numbers, SEED)
        if correction is not None:
            factor[places], count[places] = np.exp(correction), len(first)
    return factor, count


def families(nodes: pd.DataFrame, base_us: np.ndarray) -> Iterator[np.ndarray]:
    """Positions of compute nodes that have a prediction above 0, an op and shapes, by family and dtype."""
    given = (nodes["node_type"] == NodeType.COMPUTE).to_numpy() & nodes[CALL[:2]].notna().all(axis=1).to_numpy()
    places = np.flatnonzero(given & (base_us > 0))  # NaN is not
    keys = nodes.iloc[places][ALIKE].astype(object).fillna("")
    for _, rows in sorted(keys.groupby(ALIKE).indices.items()):
        yield places[rows]


def call_numbers(nodes: pd.DataFrame, base_us: np.ndarray) -> np.ndarray:
    """[n, 7] logarithms by which calls of a family are alike: base prediction, FLOPs, bytes, edges of first tensors."""
    works = [np.nan_to_num(nodes[name].to_numpy(float)) for name in ("flops", "bytes")]
    edges = np.array([_edges(str(dims)) for dims in nodes["input_dims"].astype(object)], float).reshape(-1, 4)
    return np.log(np.column_stack([base_us, *(1.0 + work for work in works), np.maximum(edges, 1.0)]))


def _edges(input_dims: str) -> tuple[float, float, float, float]:
    """Leading elements and last edge of the first tensors; 1: there is no second one."""
    first, second, *_ = (*tensor_shapes(input_dims), (1,), (1,))
    return float(np.prod(first[:-1])), float(first[-1]), float(np.prod(second[:-1])), float(second[-1])


def _corrected(base: Prediction, factor: np.ndarray, count: np.ndarray) -> Prediction:
    reason = base.reasons.copy()
    for each in np.unique(count[count > 0]).tolist():
        reason[count == each] = REASON.format(count=each)
    means = base.mean_latency_us
    return replace(
        base, latency_us=base.latency_us * factor, mean_latency_us=None if means is None else means * factor,
        latency_low_us=base.latency_low_us * factor, latency_high_us=base.latency_high_us * factor, reason=reason,
    )  # fmt: skip
