"""The same step with edits: predicted as the unedited one is, then distinguished from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gnnperf.core import NodeType, Source
from gnnperf.graph import REASONS, ExecutionGraph, Isolated, Prediction, Predictor, uncovered_ops
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.assembly import Question, assemble
from gnnperf.predict.predictors import Predictors
from gnnperf.predict.ratios import EDIT, step_bounds_us
from gnnperf.predict.step_prediction import StepPrediction, WhatIfPrediction
from gnnperf.predict.target import with_collective_models
from gnnperf.whatif import Edit, Edited, HardwareChange, Requested, apply, requested

# One prediction of a graph whose nodes run on different hardware: every node as on its own cluster.
#
#                cluster A      cluster B
# rank 0         100            80            runs on A      100
# rank 1         100            80            runs on B       80
# all_reduce      50            60            of both         60, the slower one

SHARED = "What if: what overlapping work takes from other work is told as in cluster {} with {}, on all ranks."

CHANGED = ("{:.3g} of {:.3g} ms on devices and links change ({:.0f} % of it without a model: by its family or bound); "
           "changed nodes hold {:.3g} of the {:.3g} ms of the critical path")  # fmt: skip
ON_DEVICES = (NodeType.COMPUTE, NodeType.MEMORY, NodeType.COLLECTIVE)
NO_BUCKETS = "What if: token buckets of links are left out, because transfers cross lines with different limits."


def predict_on(graph: ExecutionGraph, predictor: Predictor, requested: Requested) -> Prediction:
    """The predictor's prediction for every node on the cluster that is requested; of several, the longest.

    A node that one of them does not cover is not covered. A lag is that of the node it delays.
    """
    estimates = [predictor.predict(graph, cluster) for cluster in requested.clusters]
    if len(estimates) == 1:
        return estimates[0]
    chosen = _slowest(estimates, requested)  # [num_nodes]
    latency_us = _picked([each.latency_us for each in estimates], chosen)
    isolated, warnings = _isolated(estimates, chosen, requested)
    return replace(
        estimates[0],
        latency_us=latency_us,
        mean_latency_us=_picked([each.scheduled_us for each in estimates], chosen),
        lag_us=_picked([each.lag_us for each in estimates], chosen[graph.edges["dst"].to_numpy()]),
        source=_picked([each.source for each in estimates], chosen),
        reason=_picked([each.reasons for each in estimates], chosen),
        analytic_latency_us=_picked([each.analytic_latency_us for each in estimates], chosen),
        latency_low_us=_picked([each.latency_low_us for each in estimates], chosen),
        latency_high_us=_picked([each.latency_high_us for each in estimates], chosen),
        uncovered_ops=uncovered_ops(graph, latency_us),
        warnings=tuple(dict.fromkeys((*(w for each in estimates for w in each.warnings), *warnings))),
        isolated=isolated,
    )


def _slowest(estimates: Sequence[Prediction], requested: Requested) -> np.ndarray:
    """[num_nodes] place of the cluster with the longest latency among those that a node is requested of."""
    predicted_us = np.stack([each.latency_us for each in estimates])[requested.cluster, requested.node]  # [num_rows]
    order = np.lexsort((np.nan_to_num(predicted_us, nan=np.inf), requested.node))
    chosen = np.zeros(estimates[0].graph.num_nodes, dtype=np.int64)
    chosen[requested.node[order]] = requested.cluster[order]  # the last one of a node stays
    return chosen


def _picked(columns: Sequence[np.ndarray], chosen: np.ndarray) -> np.ndarray:
    """[n] of each place the value in the column that is chosen there."""
    result: np.ndarray = np.stack(columns)[chosen, np.arange(len(chosen))]
    return result


def _isolated(
    estimates: Sequence[Prediction], chosen: np.ndarray, requested: Requested
) -> tuple[Isolated | None, tuple[str, ...]]:
    """Latencies of isolated ops; sharing comes from one cluster, that of most nodes."""
    given = [each.isolated for each in estimates]
    most = int(np.bincount(chosen, minlength=len(estimates)).argmax())
    ruling = given[most]
    if ruling is None:
        return None, ()
    silent = np.zeros(len(chosen), dtype=bool)
    nodes = _picked([silent if each is None else each.nodes for each in given], chosen)
    alike = all(each is not None and each.contention == ruling.contention for each in given)
    cluster = requested.clusters[most]
    if any(each is not None and each.contention.outer_bucket != ruling.contention.outer_bucket for each in given):
        # a bucket goes with its line's limit: that of another line would spare these transfers all they take
        ruling = replace(ruling, contention=replace(ruling.contention, outer_bucket=None))
        return replace(ruling, nodes=nodes), (SHARED.format(cluster.name, cluster.device.name), NO_BUCKETS)
    sentences = () if alike else (SHARED.format(cluster.name, cluster.device.name),)
    return replace(ruling, nodes=nodes), sentences


def with_edits(
    unedited: StepPrediction,
    edits: Sequence[Edit],
    predictor: Predictor,
    cluster: ClusterSpec,
    question: Question,
    collectives: str | None = None,
    cluster_of: Callable[[ExecutionGraph], ClusterSpec] | None = None,
) -> StepPrediction:
    """The prediction with what the edits make of the same step; their blind spots are among its warnings."""
    from gnnperf.predict.whatif import written  # loads all edits

    edited = _with_collective_models(apply(unedited.prediction.graph, edits), collectives)
    grown = edited.graph.world_size != unedited.prediction.graph.world_size
    chosen = cluster_of(edited.graph) if grown and cluster_of is not None else cluster
    on = requested(edited.graph, chosen, edited.hardware)
    prediction = predict_edited(edited, predictor, chosen)
    estimate = assemble(prediction, _requested_on(question, on))
    interval = None
    if question.from_trace and not edited.hardware and chosen == cluster and unedited.step_time_us > 0:
        interval = step_bounds_us(EDIT, estimate.step_time_us / unedited.step_time_us)
    unknown = tuple(dict.fromkeys(edited.unknown))
    result = (*edited.result, *([_changed(unedited, edited, prediction)] if question.from_trace else []))
    num_touched = int(edited.touched.sum())
    whatif = WhatIfPrediction(tuple(map(written, edits)), estimate, num_touched, unknown, result, interval)
    own = [note for note in estimate.notes if note not in unedited.notes]
    return replace(
        unedited, whatif=whatif, warnings=(*_uncovered(unedited, estimate), *unedited.warnings),
        notes=(*own, *unedited.notes),
    )  # fmt: skip


def _changed(unedited: StepPrediction, edited: Edited, prediction: Prediction) -> str:
    """How much of the measured work changes, how much of that no model covers, and how much of it sets the step time.

    A copy counts as the node that it is a copy of. A transfer that the wait for untraced ranks hides counts as edited.
    """
    nodes, latency_us = unedited.prediction.graph.nodes, np.nan_to_num(unedited.prediction.latency_us)
    works = nodes["node_type"].isin(ON_DEVICES).to_numpy()
    hidden = edited.touched & (latency_us[edited.came_from] == 0.0)
    latency_us[edited.came_from[hidden]] = np.nan_to_num(prediction.latency_us)[hidden]
    touched, unmodeled = np.zeros(len(nodes), dtype=bool), np.zeros(len(nodes), dtype=bool)
    touched[edited.came_from[edited.touched]] = True
    unmodeled[edited.came_from[edited.touched & np.isnan(prediction.analytic_latency_us)]] = True
    total, moved, open_ = (latency_us[works & chosen].sum() for chosen in (works, touched, unmodeled))
    share = 100.0 * open_ / moved if moved > 0 else 0.0
    critical = unedited.critical_us[touched].sum()
    return CHANGED.format(moved / 1e3, total / 1e3, share, critical / 1e3, unedited.step_time_us / 1e3)


def predict_edited(edited: Edited, predictor: Predictor, cluster: ClusterSpec) -> Prediction:
    """The predictor's prediction for the edited graph, on the hardware and with the latencies that edits declare."""
    moved = predictor.on_edit(edited) if isinstance(predictor, Predictors) else predictor
    given = predict_on(edited.graph, moved, requested(edited.graph, cluster, edited.hardware))
    change = edited.latency_change
    latency_us, declared = change.of(given.latency_us), ~np.isnan(change.declared_us)  # [num_nodes] each
    return replace(
        given,
        latency_us=latency_us,
        mean_latency_us=None if given.mean_latency_us is None else change.of(given.mean_latency_us),
        latency_low_us=change.of(given.latency_low_us),
        latency_high_us=change.of(given.latency_high_us),
        source=np.where(declared, Source.DECLARED, given.source).astype(object),
        reason=np.where(declared, REASONS[Source.DECLARED], given.reasons),
        uncovered_ops=uncovered_ops(edited.graph, latency_us),
    )


def _with_collective_models(edited: Edited, collectives: str | None) -> Edited:
    if collectives is None or not edited.hardware:
        return edited
    last = HardwareChange(partial(with_collective_models, collectives=collectives))
    return replace(edited, hardware=(*edited.hardware, last))


def _requested_on(question: Question, on: Requested) -> Question:
    """The question about the edited step: its devices and clusters by name; no such step was measured."""
    devices = dict.fromkeys(cluster.device.name for cluster in on.clusters)
    clusters = dict.fromkeys(cluster.name for cluster in on.clusters)
    return replace(question, same_hardware=False, hardware=", ".join(devices), cluster=", ".join(clusters))


def _uncovered(unedited: StepPrediction, edited: StepPrediction) -> tuple[str, ...]:
    """Where the edited graph has more work without a latency, the difference misses it."""
    if edited.uncovered_ops == unedited.uncovered_ops:
        return ()
    before, after = (sum(estimate.uncovered_ops.values()) for estimate in (unedited, edited))
    return (
        f"What if: {after} nodes are not covered with the edits, {before} without: the difference leaves them out.",
    )
