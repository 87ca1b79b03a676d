"""What not knowing the machine costs: bases times one factor per recording that is read off the recording itself.

No answer that could be given before the run. Where it is much better than the base, the host (or device work that tells
no sizes) is off as a whole; where it is not, ops are off among each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import NodeType
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.step_time import IsolatedPrediction, contended_step_time_us, filled_us, in_place_us
from gnnperf.gnn.evaluation.metrics import is_measured


@dataclass(frozen=True)
class OwnScale:
    """The base, nodes of some types at the pace of the recording that is judged.

    Attributes:
        groups: of node types; each group has one factor.
    """

    groups: tuple[tuple[NodeType, ...], ...]

    def fit(self, data: PreparedData, seed: int) -> OwnScale:
        """Nothing to fit."""
        return self

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes] next to other work."""
        result_us = self.isolated_us(step)
        return in_place_us(step, IsolatedPrediction(result_us, result_us))

    def step_us(self, step: Step) -> float:
        """Scheduled, with contention."""
        return contended_step_time_us(step, self.isolated_us(step))

    def isolated_us(self, step: Step) -> np.ndarray:
        """[num_nodes] the base, each group as long in all as was measured."""
        result_us = filled_us(step, np.full(len(step.nodes), np.nan))
        measured_us = step.nodes["latency_us"].to_numpy(np.float64)
        for group in self.groups:
            own = step.nodes["node_type"].isin(group).to_numpy()
            known = own & is_measured(measured_us) & (result_us > 0)
            if known.any():
                result_us[own] *= measured_us[known].sum() / result_us[known].sum()
        return result_us
