"""Intervals of predictions: calibrated on recordings that nothing was fitted on, and told with every answer."""

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
    StepMiss,
    answer_table,
    fit_node_intervals,
    fit_step_intervals,
    miss_of,
    node_kinds,
    run_of,
)
from gnnperf.graph import Prediction, Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.assembly import Question, assemble
from gnnperf.predict.config import Mode
from gnnperf.predict.step_interval import path_table

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
            answer = assemble(prediction, asked_about(step, mode))
            tables.append(_table(answer.prediction, step.cluster.device.name).assign(
                run=run_of(step.run), measured_us=step.nodes["latency_us"].to_numpy()))  # fmt: skip
            misses[mode].append(miss_of(run_of(step.run), (answer.step_time_us, step.step_us), path_table(answer)))
    devices = [step.cluster.device.name for step in recordings]
    steps = {str(mode): fit_step_intervals(found, LEVEL, devices) for mode, found in misses.items()}
    return Intervals(fit_node_intervals(pd.concat(tables, ignore_index=True), LEVEL), steps)


def _table(answer: Prediction, device: str) -> pd.DataFrame:
    nodes = answer.graph.nodes
    family = nodes["family"].astype(object).to_numpy()
    return answer_table(device, answer.source, node_kinds(nodes), family, answer.latency_us)


def asked_about(step: Step, mode: Mode) -> Question:
    """The step as if it had been asked about, on its own hardware."""
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
