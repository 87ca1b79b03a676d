"""The same step with edits: predicted as the unedited one is, then told apart from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gnnperf.core import Source
from gnnperf.graph import REASONS, ExecutionGraph, Prediction, Predictor, uncovered_ops
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.assembly import Question, assemble
from gnnperf.predict.laws import with_laws
from gnnperf.predict.mixed import predict_on
from gnnperf.predict.predictors import Predictors
from gnnperf.predict.step_prediction import StepPrediction, WhatIfAnswer
from gnnperf.whatif import Asked, Edit, Edited, HardwareChange, apply, asked


def with_edits(
    unedited: StepPrediction,
    edits: Sequence[Edit],
    predictor: Predictor,
    cluster: ClusterSpec,
    question: Question,
    collectives: str | None = None,
    cluster_of: Callable[[ExecutionGraph], ClusterSpec] | None = None,
) -> StepPrediction:
    """The answer with what the edits make of the same step; their blind spots are among its warnings.

    Args:
        unedited: the answer without them.
        edits: made one after the other.
        predictor: who answered.
        cluster: that the unedited step was predicted for.
        question: what was asked of the unedited step.
        collectives: laws asked for, whatever cluster an edit names; None: as the cluster says.
        cluster_of: the cluster as a graph on another number of ranks is placed on it; None: the same.

    Raises:
        InputError: the step has no place for one of the edits.
    """
    edited = _with_laws(apply(unedited.prediction.graph, edits), collectives)
    grown = edited.graph.world_size != unedited.prediction.graph.world_size
    chosen = cluster_of(edited.graph) if grown and cluster_of is not None else cluster
    on = asked(edited.graph, chosen, edited.hardware)
    prediction = predict_edited(edited, predictor, chosen)
    answer = assemble(prediction, _asked_on(question, on))
    whatif = WhatIfAnswer(tuple(map(str, edits)), answer, int(edited.touched.sum()), edited.unknown, edited.found)
    own = [warning for warning in prediction.warnings if warning not in unedited.warnings]
    said = tuple(f"What if: not known is {sentence}." for sentence in dict.fromkeys(edited.unknown))
    return replace(unedited, whatif=whatif, warnings=(*_uncovered(unedited, answer), *said, *own, *unedited.warnings))


def predict_edited(edited: Edited, predictor: Predictor, cluster: ClusterSpec) -> Prediction:
    """The predictor's answer for the edited graph, on the hardware and with the latencies that edits declare.

    Args:
        edited: the graph, and what its edits declare.
        predictor: who answers.
        cluster: that the unedited graph is predicted for.
    """
    moved = predictor.on_edit(edited) if isinstance(predictor, Predictors) else predictor
    told = predict_on(edited.graph, moved, asked(edited.graph, cluster, edited.hardware))
    change = edited.latency_change
    latency_us, declared = change.of(told.latency_us), ~np.isnan(change.declared_us)  # [num_nodes] each
    return replace(
        told,
        latency_us=latency_us,
        mean_latency_us=None if told.mean_latency_us is None else change.of(told.mean_latency_us),
        latency_low_us=change.of(told.latency_low_us),
        latency_high_us=change.of(told.latency_high_us),
        source=np.where(declared, Source.DECLARED, told.source).astype(object),
        reason=np.where(declared, REASONS[Source.DECLARED], told.reasons),
        uncovered_ops=uncovered_ops(edited.graph, latency_us),
    )


def _with_laws(edited: Edited, collectives: str | None) -> Edited:
    """Laws that were asked for hold in every cluster that edits name."""
    if collectives is None or not edited.hardware:
        return edited
    last = HardwareChange(partial(with_laws, collectives=collectives))
    return replace(edited, hardware=(*edited.hardware, last))


def _asked_on(question: Question, on: Asked) -> Question:
    """The question about the edited step: its devices and clusters by name; no such step was measured."""
    devices = dict.fromkeys(cluster.device.name for cluster in on.clusters)
    clusters = dict.fromkeys(cluster.name for cluster in on.clusters)
    return replace(question, same_hardware=False, hardware=", ".join(devices), cluster=", ".join(clusters))


def _uncovered(unedited: StepPrediction, edited: StepPrediction) -> tuple[str, ...]:
    """Where the edited graph has more work without a latency, the difference misses it."""
    if edited.uncovered_ops == unedited.uncovered_ops:
        return ()
    before, after = (sum(answer.uncovered_ops.values()) for answer in (unedited, edited))
    return (
        f"What if: {after} nodes are not covered with the edits, {before} without: the difference leaves them out.",
    )
