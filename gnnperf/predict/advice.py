"""Findings of a prediction: about the step that it reports.

Blind predictions for the hardware of the trace, and replays, are about the measured step instead.
"""

from dataclasses import replace

import numpy as np

from gnnperf.core import StepTimeKind
from gnnperf.graph import Predictor
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.assembly import Question, time_us
from gnnperf.predict.edited import ON_DEVICES, predict_edited
from gnnperf.predict.predictors import Predictors
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.schedule import NUM_UNROLLED
from gnnperf.whatif import LARGEST_GRAPH, Basis, Edited, Observed, find, measured_step

MOST_UNCOVERED = 0.1  # of the nodes on devices: a device whose work is not given would seem idle
UNCOVERED = "Findings need latencies: {:,} of {:,} nodes on devices are not covered, so none are looked for."
TOO_LARGE = "Findings are looked for in graphs of up to {:,} nodes; this one has {:,}."


def with_findings(
    result: StepPrediction, question: Question, predictor: Predictor | None = None, cluster: ClusterSpec | None = None
) -> StepPrediction:
    """The prediction with what holds its step up."""
    num_nodes = result.prediction.graph.num_nodes
    if num_nodes > LARGEST_GRAPH:
        return replace(result, notes=(*result.notes, TOO_LARGE.format(LARGEST_GRAPH, num_nodes)))
    on_device = result.prediction.graph.nodes["node_type"].isin(ON_DEVICES).to_numpy()
    missing, all_ = int((on_device & np.isnan(result.prediction.latency_us)).sum()), int(on_device.sum())
    if not _is_measured(result) and missing > MOST_UNCOVERED * all_:
        return replace(result, notes=(*result.notes, UNCOVERED.format(missing, all_)))
    return replace(result, findings=find(_observed(result, question, predictor, cluster)))


def _is_measured(result: StepPrediction) -> bool:
    """Whether the step was measured on the hardware that it is predicted for."""
    return result.measured_step_time_us is not None and bool(np.isfinite(result.measured_step_time_us))


def _observed(
    result: StepPrediction, question: Question, predictor: Predictor | None, cluster: ClusterSpec | None
) -> Observed:
    prediction = result.prediction
    trace = predictor.trace if isinstance(predictor, Predictors) else None
    if trace is None and _is_measured(result):
        num_unrolled = NUM_UNROLLED if result.step_time_kind is StepTimeKind.PERIOD else 1
        return measured_step(prediction.graph, num_unrolled, cluster, predictor, prediction.analytic_latency_us)
    assert predictor is not None, "a replay is of what was measured"
    assert cluster is not None, "a replay is of what was measured"

    def step_time_of(edited: Edited) -> float:
        return time_us(predict_edited(edited, predictor, cluster), question)

    stall_us = without_us = None
    if isinstance(predictor, Predictors) and trace is not None and trace.measured.stalls_us.any():
        stall_us = trace.measured.stalls_us
        usual = predictor.without_stalls().predict(prediction.graph, cluster)
        without_us = time_us(usual, question)

    return Observed(
        graph=prediction.graph,
        latency_us=np.nan_to_num(prediction.scheduled_us),
        known=~np.isnan(prediction.latency_us),
        predicted_us=prediction.analytic_latency_us,
        schedule=result.schedule,
        step_time_us=result.step_time_us,
        basis=Basis.MEASURED if trace is not None and trace.traced == cluster else Basis.PREDICTED,
        cluster=cluster,
        step_time_of=step_time_of,
        stall_us=stall_us,
        without_stalls_us=without_us,
    )
