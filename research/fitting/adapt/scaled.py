"""Any predictor with factors on its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import require
from gnnperf.graph import ExecutionGraph, Prediction, Predictor
from gnnperf.hardware import ClusterSpec
from research.fitting.adapt.parts import PARTS, parts_of


@dataclass(frozen=True)
class ScaledPredictor:
    """Answers of a predictor times a factor per part.

    Attributes:
        predictor: whose answers.
        factors: [num_parts] positive, in the order of PARTS.
    """

    predictor: Predictor
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        require(len(self.factors) == len(PARTS) and min(self.factors) > 0, "factors", self.factors,
                f"{len(PARTS)} positive numbers: {', '.join(part.name for part in PARTS)}")  # fmt: skip

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Latencies, their intervals and lags times the factor of their part; sources as they are."""
        given = self.predictor.predict(graph, cluster)
        part, factors = parts_of(graph), np.append(self.factors, 1.0)  # -1 is the last: no part
        factor = factors[part.node]  # [num_nodes]
        return replace(
            given,
            latency_us=given.latency_us * factor,
            latency_low_us=given.latency_low_us * factor,
            latency_high_us=given.latency_high_us * factor,
            lag_us=given.lag_us * factors[part.edge],
        )
