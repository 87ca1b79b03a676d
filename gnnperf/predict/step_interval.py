"""The interval of a step time: from the checkpoint that answered, for hardware that it was calibrated on."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from gnnperf.gnn import StepIntervals, shares_of
from gnnperf.predict.step_prediction import StepPrediction

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
