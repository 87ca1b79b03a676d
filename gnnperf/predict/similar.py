"""What measured calls say about similar ones of the same step: a few measurements correct the answers for the rest.

    kernels of one op family and dtype       measured, base answer          ->  off by log(measured / base)
                                             not measured                   ->  base x exp(what similar ones are off by)

How far a measurement reaches is chosen by leaving groups of them out; a family whose measurements do not tell of each
other keeps its answers, and so does one with fewer than LEAST_ROWS (gnnperf.predict.gaussian_process).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph, Prediction, Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.gaussian_process import LEAST_ROWS, learn
from gnnperf.predict.measured import MeasuredPredictor, tensor_shapes
from gnnperf.predict.predictors import merge

SEED = 0
CALL = ["op_name", "input_dims", "dtype"]
ALIKE = ["family", "dtype"]
REASON = "corrected as {count} measured calls of its family and dtype were off"


@dataclass(frozen=True)
class SimilarPredictor:
    """Measured calls answer for themselves, and correct the base's answers for calls like them.

    Attributes:
        measured: the table.
        base: who answers for all else.
    """

    measured: MeasuredPredictor
    base: Predictor

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Both, and the base corrected.

        Raises:
            InputError: the table was measured on another device than the prediction is for.
        """
        known, base = self.measured.predict(graph, cluster), self.base.predict(graph, cluster)
        factor, count = factors(graph.nodes, known.latency_us, base.latency_us)
        return merge([known, _corrected(base, factor, count)])


def factors(nodes: pd.DataFrame, measured_us: np.ndarray, base_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[num_nodes] what to multiply the base's answers by, and how many measured calls say so (0: none do).

    Args:
        nodes: of a graph.
        measured_us: [num_nodes] NaN: not measured.
        base_us: [num_nodes] NaN: no answer.
    """
    factor, count = np.ones(len(nodes)), np.zeros(len(nodes), dtype=int)
    for places in families(nodes, base_us):
        numbers = call_numbers(nodes.iloc[places], base_us[places])
        known = np.isfinite(measured_us[places])
        _, first = np.unique(numbers[known], axis=0, return_index=True)  # each call counts once
        if len(first) < LEAST_ROWS:
            continue
        off = np.log(measured_us[places] / base_us[places])[known][first]
        learned = learn(numbers[known][first], off, numbers, SEED)
        if learned.reach is not None:
            factor[places], count[places] = np.exp(learned.correction(numbers)), len(first)
    return factor, count


def families(nodes: pd.DataFrame, base_us: np.ndarray) -> Iterator[np.ndarray]:
    """Positions of compute nodes that have an answer above 0, an op and shapes, family by family and dtype by dtype."""
    given = (nodes["node_type"] == NodeType.COMPUTE).to_numpy() & nodes[CALL[:2]].notna().all(axis=1).to_numpy()
    places = np.flatnonzero(given & (base_us > 0))  # NaN is not
    keys = nodes.iloc[places][ALIKE].astype(object).fillna("")
    for _, rows in sorted(keys.groupby(ALIKE).indices.items()):
        yield places[rows]


def call_numbers(nodes: pd.DataFrame, base_us: np.ndarray) -> np.ndarray:
    """[n, 7] logarithms by which calls of a family are alike: base answer, FLOPs, bytes, edges of the first tensors."""
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
