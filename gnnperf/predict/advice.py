"""Findings of an answer: about measurements where it is for the hardware of the trace, else about predictions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.findings import LARGEST_GRAPH, Basis, Observed, find, measured_step
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.plan.edit import Edited
from gnnperf.predict.assemble import Question, assemble
from gnnperf.predict.edited import predict_edited
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.prediction import Predictor
from gnnperf.schedule.step_visits import NUM_UNROLLED
from gnnperf.schema import StepTimeKind

TOO_LARGE = "Findings are looked for in graphs of up to {:,} nodes; this one has {:,}."


def with_findings(
    answer: StepPrediction, question: Question, predictor: Predictor | None = None, cluster: ClusterSpec | None = None
) -> StepPrediction:
    """The answer with what holds its step up.

    Args:
        answer: of the unedited step.
        question: that it answers.
        predictor: who answered, and answers for edits; None: a replay, whose edits keep to what was measured.
        cluster: predicted for; None: a replay.
    """
    num_nodes = answer.prediction.graph.num_nodes
    if num_nodes > LARGEST_GRAPH:
        return replace(answer, warnings=(*answer.warnings, TOO_LARGE.format(LARGEST_GRAPH, num_nodes)))
    return replace(answer, findings=find(_observed(answer, question, predictor, cluster)))


def _observed(
    answer: StepPrediction, question: Question, predictor: Predictor | None, cluster: ClusterSpec | None
) -> Observed:
    prediction = answer.prediction
    if answer.measured_step_time_us is not None and np.isfinite(answer.measured_step_time_us):
        num_unrolled = NUM_UNROLLED if answer.step_time_kind is StepTimeKind.PERIOD else 1
        return measured_step(prediction.graph, num_unrolled, cluster, predictor, prediction.analytic_latency_us)
    assert predictor is not None, "a replay is of what was measured"
    assert cluster is not None, "a replay is of what was measured"

    def step_time_of(edited: Edited) -> float:
        return assemble(predict_edited(edited, predictor, cluster), question).step_time_us

    return Observed(
        graph=prediction.graph,
        latency_us=np.nan_to_num(prediction.scheduled_us),
        told_us=prediction.analytic_latency_us,
        schedule=answer.schedule,
        step_time_us=answer.step_time_us,
        basis=Basis.PREDICTED,
        cluster=cluster,
        step_time_of=step_time_of,
    )
