"""Step times of many graphs as functions of the factors on their parts: maxima of planes.

The planes are longest paths at some choices of factors (fitting.adapt.path_time): exact at these, never too long
elsewhere. Once they are known, a step time at other factors takes no schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.graph import Prediction
from research.fitting.adapt.parts import parts_of
from research.fitting.adapt.path_time import path_times_us

# Which of host and device is slower decides a step: choices go through their ratio, and through what fills the device,
# kernels or the gaps between them.
CHOICES = (  # [num_choices, num_parts]: host, calls, kernels, transfers, gaps
    (1.0, 1.0, 1.0, 1.0, 1.0),
    (0.5, 0.5, 1.0, 1.0, 1.0),
    (1.4, 1.4, 1.0, 1.0, 1.0),
    (2.0, 2.0, 1.0, 1.0, 1.0),
    (3.0, 3.0, 1.0, 1.0, 1.0),
    (1.4, 0.4, 1.0, 1.0, 1.0),
    (1.4, 0.4, 1.0, 1.0, 6.0),
    (1.4, 1.4, 0.9, 1.0, 12.0),
)


@dataclass(frozen=True)
class StepLinearBounds:
    """Step times as maxima of planes.

    Attributes:
        time_us: [num_steps, num_choices, num_parts + 1] us of each part on a longest path; last, of no part.
    """

    time_us: np.ndarray

    def step_us(self, factors: np.ndarray) -> np.ndarray:
        """[num_steps] us with `factors` [num_parts] on the latencies of the parts."""
        return (self.time_us @ np.append(factors, 1.0)).max(axis=1)

    def of(self, steps: np.ndarray) -> StepLinearBounds:
        """Those of some steps: an index or mask of [num_steps]."""
        return replace(self, time_us=self.time_us[steps])


def linear_bounds_of(prediction: Prediction) -> np.ndarray:
    """[num_choices, num_parts + 1] us of one step's graph, as a row of `StepLinearBounds`; nothing is shared."""
    graph = prediction.graph
    return path_times_us(graph, prediction.latency_us, prediction.lag_us, parts_of(graph), np.array(CHOICES))
