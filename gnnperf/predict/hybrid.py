"""HybridPredictor: per node, the best answer that any predictor of a ladder gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import Source
from gnnperf.graph import Alone, ExecutionGraph, Prediction, Predictor, only, uncovered, uncovered_ops
from gnnperf.hardware import ClusterSpec


@dataclass(frozen=True)
class HybridPredictor:
    """A ladder of predictors, best first: a node keeps the first answer that is not NaN.

    Every predictor decides by itself where it has ground to stand on (the network: op in its vocabulary, features in
    the training range) and answers NaN elsewhere. Lags are the last rung's, the analytical model's.
    """

    ladder: tuple[Predictor, ...]

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Predict every node of `graph` with the first rung that covers it."""
        return merge([rung.predict(graph, cluster) for rung in self.ladder])


def merge(predictions: Sequence[Prediction]) -> Prediction:
    """One prediction from several of the same graph, best first."""
    merged = predictions[-1]
    for better in reversed(predictions[:-1]):
        merged = _over(better, merged)
    return replace(merged, uncovered_ops=uncovered_ops(merged.graph, merged.latency_us))


def _over(better: Prediction, worse: Prediction) -> Prediction:
    """`better` where it answers, `worse` elsewhere."""
    answers = ~np.isnan(better.latency_us)  # [num_nodes]
    source = np.where(answers, better.source, worse.source)
    source[uncovered(worse.graph, np.where(answers, better.latency_us, worse.latency_us))] = Source.UNCOVERED
    return replace(
        worse,
        latency_us=np.where(answers, better.latency_us, worse.latency_us),
        mean_latency_us=_means(better, worse, answers),
        latency_low_us=np.where(answers, better.latency_low_us, worse.latency_low_us),
        latency_high_us=np.where(answers, better.latency_high_us, worse.latency_high_us),
        source=source,
        reason=np.where(answers, better.reasons, worse.reasons),
        warnings=tuple(dict.fromkeys((*better.warnings, *worse.warnings))),
        alone=_either(only(better.alone, answers), only(worse.alone, ~answers)),
    )


def _means(better: Prediction, worse: Prediction, answers: np.ndarray) -> np.ndarray | None:
    """Of both where one of them tells means apart from what is usual."""
    if better.mean_latency_us is None and worse.mean_latency_us is None:
        return None
    return np.where(answers, better.scheduled_us, worse.scheduled_us)


def _either(first: Alone | None, second: Alone | None) -> Alone | None:
    """Nodes of both; the rungs of a ladder answer for one cluster."""
    if first is None or second is None:
        return first or second
    return replace(first, nodes=first.nodes | second.nodes)
