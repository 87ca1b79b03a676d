"""What measured calls say about similar ones of the same step: a few measurements correct the predictions for the rest.

    kernels of one op family and dtype       measured, base prediction          ->  off by log(measured / base)
                                             not measured                   ->  base x exp(correction)

    correction = sum over measured rows of weight x (OFFSET + SPREAD x exp(-distance / LENGTH))

That is a Gaussian process whose prior is the base (Rasmussen, Williams 2006, chapter 2), over logarithms of sizes. The
errors of measured rows have a Student distribution, so a row that contradicts its neighbors counts less (Jylanki,
Vanhatalo, Vehtari 2011). A family with fewer than LEAST_ROWS measured calls keeps its base. Torch is not needed.
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

OFFSET = 1.0  # variance of what the base misses of all calls; how all of these were chosen: benchmarks/transfer.md
SPREAD, LENGTH = 0.05, 6.0  # variance of what it misses by size; the distance over which this falls by e
NOISE, PRIOR_ROWS, FREEDOM = 0.006, 64, 4.0  # squared scale of errors, as of PRIOR_ROWS; their degrees of freedom
LEAST_ROWS, ROUNDS = 10, 20


def corrections(numbers: np.ndarray, off: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """[n] what measured rows add to the log us of all.

    `numbers` [k, num_numbers], logarithms, and `off` [k], log(measured / zero-shot), are of the measured rows, `pool`
    [n, num_numbers] of all rows. Corrections, counts of rows and noise are a joint mode.
    """
    covariance, noise, counts = _covariance(numbers, numbers), NOISE, np.ones(len(off))
    for _ in range(ROUNDS):  # how much each row counts, given the corrections, and the other way around
        weights = np.linalg.solve(covariance + np.diag(noise / counts), off)
        squares = (off - covariance @ weights) ** 2
        counts = (FREEDOM + 1.0) / (FREEDOM + squares / noise)
        noise = (PRIOR_ROWS * NOISE + counts @ squares) / (PRIOR_ROWS + len(off))
    return _covariance(pool, numbers) @ weights


def choose(numbers: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Places of at most `count` of [n, num_numbers] to measure: those nearest to the centers of k-means (Lloyd 1982).

    Fewer come back where one row is nearest to two centers.
    """
    if count > len(numbers):
        raise InputError(f"{count} rows of {len(numbers)}", where="rows to measure", allowed=f"at most {len(numbers)}")
    centers = numbers[np.random.default_rng(seed).choice(len(numbers), count, replace=False)]
    for _ in range(20):
        nearest = _distances(numbers, centers).argmin(axis=1)  # [n]
        sums = np.zeros_like(centers)
        np.add.at(sums, nearest, numbers)
        size = np.bincount(nearest, minlength=count)[:, None]
        centers = np.where(size > 0, sums / np.maximum(size, 1), centers)
    return np.unique(_distances(numbers, centers).argmin(axis=0))


def _covariance(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[n, num_numbers], [k, num_numbers] -> [n, k]."""
    return OFFSET + SPREAD * np.exp(-np.sqrt(_distances(left, right)) / LENGTH)


def _distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[n, k] squared."""
    result = (left**2).sum(axis=1)[:, None] - 2.0 * left @ right.T + (right**2).sum(axis=1)
    return np.maximum(result, 0.0)


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
        base = self.base.predict(graph, cluster)
        return merge([self.measured.predict(graph, cluster), corrected(self.measured, base, cluster)])


def factors(nodes: pd.DataFrame, measured_us: np.ndarray, base_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[num_nodes] what to multiply the base's predictions by, and the number of measured calls (0: none do).

    NaN in `measured_us` [num_nodes] and `base_us` [num_nodes]: not measured, no prediction.
    """
    factor, count = np.ones(len(nodes)), np.zeros(len(nodes), dtype=int)
    for places in families(nodes, base_us):
        numbers = call_numbers(nodes.iloc[places], base_us[places])
        known = np.isfinite(measured_us[places])
        first, call = distinct_calls(nodes.iloc[places[known]])  # each call counts once
        if len(first) < LEAST_ROWS:
            continue
        off = np.bincount(call, np.log((measured_us / base_us)[places[known]])) / np.bincount(call)
        factor[places], count[places] = np.exp(corrections(numbers[known][first], off, numbers)), len(first)
    return factor, count


def distinct_calls(nodes: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Of nodes of one dtype [n]: the place of the first node of each call, and the number of each node's call [n]."""
    codes = nodes.groupby(CALL[:2], observed=True).ngroup()
    _, first, call = np.unique(codes, return_index=True, return_inverse=True)
    return first, call


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


def corrected(measured: MeasuredPredictor, base: Prediction, cluster: ClusterSpec) -> Prediction:
    """The prediction, where calls that the table measured on this cluster's device state what it misses."""
    factor, count = factors(base.graph.nodes, measured.predict(base.graph, cluster).latency_us, base.latency_us)
    reason = base.reasons.copy()
    for each in np.unique(count[count > 0]).tolist():
        reason[count == each] = REASON.format(count=each)
    means = base.mean_latency_us
    return replace(
        base, latency_us=base.latency_us * factor, mean_latency_us=None if means is None else means * factor,
        latency_low_us=base.latency_low_us * factor, latency_high_us=base.latency_high_us * factor, reason=reason,
    )  # fmt: skip
