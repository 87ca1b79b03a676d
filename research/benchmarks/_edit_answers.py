"""What a predictor says of a known change of a step, with and without the recording of the step as it was.

by itself      predicted (A edited) - predicted (A)                                       two schedules of predictions
held       recorded x predicted (A edited) / predicted (A), node by node, scheduled   - A's recording, scheduled
recorded   held by none predictions: only what the edit declares, moves, copies or takes out

A copy takes as long as its original; what an edit declares (a pause, a factor) holds for any latency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.graph import ExecutionGraph, Prediction, Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.edited import predict_edited
from gnnperf.schedule import NUM_UNROLLED, measured_latencies, schedule, schedule_with_contention
from gnnperf.whatif.edit import Edited, unedited


@dataclass(frozen=True)
class Change:
    """One predictor's.

    Attributes:
        before_us, after_us: predicted steps.
        held_us: change of the recorded step by the predicted ratios of its nodes.
    """

    before_us: float
    after_us: float
    held_us: float

    @property
    def isolated_us(self) -> float:
        """The change without the recording."""
        return self.after_us - self.before_us

    def ratio_us(self, step_us: float) -> float:
        """The change as the predicted ratio of a measured step."""
        return (self.after_us / self.before_us - 1.0) * step_us


def change_of(edited: Edited, step: ExecutionGraph, predictor: Predictor, cluster: ClusterSpec) -> Change:
    """What the predictor says."""
    before = predict_edited(unedited(step), predictor, cluster)
    given = predict_edited(replace(edited, change=None), predictor, cluster)
    after_us = predicted_step_us(given, edited.latency_change.of(given.scheduled_us))
    predicted_us = given.scheduled_us  # [num_nodes of edited]
    ratio = ratios(before.scheduled_us[edited.came_from], predicted_us)
    return Change(predicted_step_us(before, before.scheduled_us), after_us, recorded_change_us(edited, step, ratio))


def ratios(before_us: np.ndarray, after_us: np.ndarray) -> np.ndarray:
    """[n] after / before; 1 where one of them is unknown or takes no time."""
    known = (before_us > 0) & (after_us > 0)
    return np.divide(after_us, before_us, out=np.ones(len(before_us)), where=known)


def recorded_change_us(edited: Edited, step: ExecutionGraph, ratio: np.ndarray) -> float:
    """Change of the recorded step; `ratio` [num_nodes of edited] of what each node, or its original, took."""
    own_us = step.nodes["latency_us"].to_numpy()[edited.came_from]
    after = replace(edited.graph, nodes=edited.graph.nodes.assign(latency_us=own_us))
    filled_us, lag_us = measured_latencies(after)
    after_us = _period_us(after, edited.latency_change.of(filled_us * ratio), lag_us)
    return after_us - _period_us(step, *measured_latencies(step))


def predicted_step_us(result: Prediction, latency_us: np.ndarray) -> float:
    """Period with these latencies [num_nodes]; what is of isolated ops is stretched where work overlaps."""
    if result.isolated is None:
        return _period_us(result.graph, latency_us, result.lag_us)
    known_us = np.nan_to_num(latency_us)
    scheduled = schedule_with_contention(
        result.graph, known_us, result.lag_us, result.isolated, num_unrolled=NUM_UNROLLED
    )
    assert scheduled.schedule.period_us is not None, "copies have a period"
    return scheduled.schedule.period_us


def _period_us(graph: ExecutionGraph, latency_us: np.ndarray, lag_us: np.ndarray) -> float:
    result = schedule(graph, np.nan_to_num(latency_us), np.nan_to_num(lag_us), num_unrolled=NUM_UNROLLED)
    assert result.period_us is not None, "copies have a period"
    return result.period_us
