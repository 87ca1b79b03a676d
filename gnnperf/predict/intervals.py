"""Intervals of predictions: calibrated on recordings that nothing was fitted on, and given with every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import Source, each
from gnnperf.gnn import (
    LEVEL,
    Intervals,
    NodeIntervals,
    Step,
    StepIntervals,
    StepMiss,
    answer_table,
    fit_node_intervals,
    fit_step_intervals,
    miss_of,
    node_kinds,
    run_of,
    shares_of,
)
from gnnperf.graph import Prediction, Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.assembly import Question, assemble
from gnnperf.predict.request import Mode
from gnnperf.predict.step_prediction import StepPrediction

# The interval of a step time: from the checkpoint that answered, for hardware that it was calibrated on.

NO_INTERVAL = (
    "No interval of the step time: it comes with a checkpoint, which is calibrated on its validation runs "
    "(mode=hybrid or analytic, checkpoint=FILE)."
)
FROM_TRACE = "No interval of the step time: it is made of measurements of this trace, which have no calibration yet."
LOWER_BOUND = "No interval of the step time: some work has no latency, so the step time is a lower bound."


def with_interval(answer: StepPrediction, intervals: StepIntervals | None, from_trace: bool = False) -> StepPrediction:
    """The answer with its interval, or with a sentence that says why there is none.

    Args:
        answer: a step's.
        intervals: of the model that predicted; None: it has none.
        from_trace: whether latencies are measurements of the trace.
    """
    if intervals is None:
        return _without(answer, FROM_TRACE if from_trace else NO_INTERVAL)
    if answer.is_lower_bound:
        return _without(answer, LOWER_BOUND)
    if answer.hardware not in intervals.devices:
        known = ", ".join(intervals.devices)
        return _without(answer, f"No interval of the step time: nothing tells how far answers for {answer.hardware} "
                                f"are off, the checkpoint was calibrated on {known}.")  # fmt: skip
    table = path_table(answer)
    bounds_us = intervals.bounds_us(answer.step_time_us, shares_of(table, answer.step_time_us))
    return replace(answer, step_time_interval_us=bounds_us, interval_level=intervals.level)


def path_table(answer: StepPrediction) -> pd.DataFrame:
    """[num_nodes] what gnnperf.gnn.intervals takes of a step's answer: node types as groups, and latencies."""
    nodes, prediction = answer.prediction.graph.nodes, answer.prediction
    return pd.DataFrame({"group": nodes["node_type"].astype(str), "critical_us": answer.critical_us,
                         "predicted_us": prediction.scheduled_us, "measured_us": nodes["latency_us"]})  # fmt: skip


def _without(answer: StepPrediction, why: str) -> StepPrediction:
    return replace(answer, warnings=(*answer.warnings, why))


MEASURED = (Source.MEASURED, Source.TRACE, Source.SCALED)


@dataclass(frozen=True)
class CalibratedBounds:
    """Intervals of nodes from a checkpoint.

    Attributes:
        intervals: errors of such predictions on validation runs.
    """

    intervals: NodeIntervals

    def __call__(self, prediction: Prediction, cluster: ClusterSpec) -> Prediction:
        """Bounds of nodes that belong to a calibrated group and have the latency of a model."""
        low_us, high_us = self.intervals.bounds_us(_table(prediction, cluster.device.name))
        measured = np.isin(prediction.source, MEASURED)
        return replace(prediction, latency_low_us=np.where(measured, np.nan, low_us),
                       latency_high_us=np.where(measured, np.nan, high_us))  # fmt: skip


def calibrated(predictors: Mapping[Mode, Predictor], recordings: Sequence[Step]) -> Intervals:
    """Intervals of these predictors' nodes and steps.

    Args:
        predictors: mode -> who answers in it.
        recordings: steps that nothing was fitted on, with the runs they belong to.

    Raises:
        InputError: a recording cannot be predicted.
    """
    tables: list[pd.DataFrame] = []
    misses: dict[Mode, list[StepMiss]] = {mode: [] for mode in predictors}
    for step in each(recordings, "calibrating intervals", "recordings"):
        for mode, predictor in predictors.items():
            prediction = predictor.predict(step.graph, step.cluster)
            answer = assemble(prediction, question_about(step, mode))
            tables.append(_table(answer.prediction, step.cluster.device.name).assign(
                run=run_of(step.run), measured_us=step.nodes["latency_us"].to_numpy()))  # fmt: skip
            misses[mode].append(miss_of(run_of(step.run), (answer.step_time_us, step.step_us), path_table(answer)))
    devices = [step.cluster.device.name for step in recordings]
    steps = {str(mode): fit_step_intervals(result, LEVEL, devices) for mode, result in misses.items()}
    return Intervals(fit_node_intervals(pd.concat(tables, ignore_index=True), LEVEL), steps)


def _table(answer: Prediction, device: str) -> pd.DataFrame:
    nodes = answer.graph.nodes
    family = nodes["family"].astype(object).to_numpy()
    return answer_table(device, answer.source, node_kinds(nodes), family, answer.latency_us)


def question_about(step: Step, mode: Mode) -> Question:
    """The step as if it had been requested, on its own hardware."""
    return Question(
        label=step.graph.steps[0],
        structure_step=step.graph.steps[0].step,
        mode=mode,
        hardware=step.cluster.device.name,
        cluster=step.cluster.name,
        traced_hardware=step.cluster.device.name,
        same_hardware=True,
        provenance={},
    )
