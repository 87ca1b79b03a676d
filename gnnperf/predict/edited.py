"""The same step with edits: predicted as the unedited one is, then told apart from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.plan import Edit, Edited, apply
from gnnperf.predict.assemble import Question, assemble
from gnnperf.predict.step_prediction import StepPrediction, WhatIfAnswer
from gnnperf.prediction import Prediction, Predictor, uncovered_ops
from gnnperf.schema import Source


def with_edits(
    unedited: StepPrediction, edits: Sequence[Edit], predictor: Predictor, cluster: ClusterSpec, question: Question,
    cluster_of: Callable[[ExecutionGraph], ClusterSpec] | None = None,
) -> StepPrediction:  # fmt: skip
    """The answer with what the edits make of the same step; their blind spots are among its warnings.

    Args:
        unedited: the answer without edits.
        edits: made one after the other.
        predictor: who answers.
        cluster: what `unedited` is predicted for.
        question: what was asked.
        cluster_of: the cluster as a graph on another number of ranks is placed on it; None: the same.

    Raises:
        InputError: the step has no place for one of the edits.
    """
    edited = apply(unedited.prediction.graph, edits)
    grown = edited.graph.world_size != unedited.prediction.graph.world_size
    chosen = cluster_of(edited.graph) if grown and cluster_of is not None else cluster
    prediction = predict_edited(edited, predictor, chosen)
    answer = assemble(prediction, replace(question, same_hardware=False))  # no such step was measured
    whatif = WhatIfAnswer(tuple(map(str, edits)), answer, int(edited.touched.sum()), edited.unknown)
    own = [warning for warning in prediction.warnings if warning not in unedited.warnings]
    said = tuple(f"What if: not known is {sentence}." for sentence in dict.fromkeys(edited.unknown))
    return replace(unedited, whatif=whatif, warnings=(*_uncovered(unedited, answer), *said, *own, *unedited.warnings))


def predict_edited(edited: Edited, predictor: Predictor, cluster: ClusterSpec) -> Prediction:
    """The predictor's answer for the edited graph, with the latencies that edits declare."""
    told = predictor.predict(edited.graph, cluster)
    change = edited.latency_change
    latency_us = change.of(told.latency_us)
    return replace(
        told,
        latency_us=latency_us,
        latency_low_us=change.of(told.latency_low_us),
        latency_high_us=change.of(told.latency_high_us),
        source=np.where(np.isnan(change.declared_us), told.source, Source.DECLARED).astype(object),
        uncovered_ops=uncovered_ops(edited.graph, latency_us),
    )


def _uncovered(unedited: StepPrediction, edited: StepPrediction) -> tuple[str, ...]:
    """Where the edited graph has more work without a latency, the difference misses it."""
    if edited.uncovered_ops == unedited.uncovered_ops:
        return ()
    before, after = (sum(answer.uncovered_ops.values()) for answer in (unedited, edited))
    return (
        f"What if: {after} nodes are not covered with the edits, {before} without: the difference leaves them out.",
    )
