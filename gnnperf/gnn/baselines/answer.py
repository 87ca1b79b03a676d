"""What a row of the comparison is: a Learner that is fitted on prepared data, and the Answer that it becomes."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gnnperf.gnn.data.prepare import PreparedData, Step


class Answer(Protocol):
    """Tells latencies of a step's nodes, or its step time only."""

    def latency_us(self, step: Step) -> np.ndarray | None:
        """[num_nodes] latencies, NaN where it has none; None: it answers for whole steps only."""
        ...

    def step_us(self, step: Step) -> float:
        """Step time, of the kind of `step.step_us`."""
        ...


class Learner(Protocol):
    """Is fitted on the parts train and val, never on test. Its repr says everything that it was told."""

    def fit(self, data: PreparedData, seed: int) -> Answer:
        """The same data and seed give the same answers; a learner without chance ignores the seed."""
        ...
