"""The same step with edits: predicted as the unedited one is, then distinguished from it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gnnperf.core import NodeType, Relation, Source, each, require
from gnnperf.graph import REASONS, ExecutionGraph, Prediction, Predictor, uncovered_ops
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.assembly import Question, assemble
from gnnperf.predict.predictors import Predictors
from gnnperf.predict.ratios import CLUSTER, EDIT, LINK, WORLD_SIZE, step_bounds
from gnnperf.predict.step_prediction import StepPrediction, WhatIfPrediction
from gnnperf.predict.target import with_collective_models
from gnnperf.whatif import Edit, Edited, HardwareChange, apply, cluster_after, ends

CHANGED = ("{:.3g} of {:.3g} ms on devices and links change ({:.0f} % of it without a model: by its family or bound); "
           "changed nodes hold {:.3g} of the {:.3g} ms of the critical path, and {:.3g} of {:.3g} ms with the edit"
           )  # fmt: skip
NO_INTERVAL = "how far the ratio may be off (no interval): no recorded pairs differ in {}"
MOST_RANKS = 2  # of recorded pairs of the same program on other numbers of ranks
QUANTILES = (0.1, 0.5, 0.9)
DISTRIBUTION = ("the step is the one of the median length of {} steps; the 10th, 50th and 90th percentiles of their "
                "times are {:.4g}, {:.4g} and {:.4g} ms")  # fmt: skip
ON_DEVICES = (NodeType.COMPUTE, NodeType.MEMORY, NodeType.COLLECTIVE)


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

    def edited_step(made: Sequence[Edit]) -> tuple[Edited, ClusterSpec, StepPrediction]:
        edited = apply(unedited.prediction.graph, made)
        if collectives is not None and edited.hardware:
            last = HardwareChange(partial(with_collective_models, collectives=collectives))
            edited = replace(edited, hardware=(*edited.hardware, last))
        grown = edited.graph.world_size != unedited.prediction.graph.world_size
        chosen = cluster_of(edited.graph) if grown and cluster_of is not None else cluster
        on = cluster_after(chosen, edited.hardware)
        # no such step was measured
        own = replace(question, same_hardware=False, hardware=on.device.name, cluster=on.name)
        return edited, chosen, assemble(predict_edited(edited, predictor, chosen), own)

    edited, chosen, estimate = edited_step(edits)
    times_us = _times_us(edits, lambda made: edited_step(made)[2].step_time_us)
    interval, unknown = None, list(dict.fromkeys(edited.unknown))
    if question.from_trace and unedited.step_time_us > 0:
        num_ranks, after = unedited.prediction.graph.world_size, cluster_after(chosen, edited.hardware)
        kinds, unrecorded = _kinds(edits, num_ranks, after == cluster)
        if unrecorded:
            unknown.append(NO_INTERVAL.format(unrecorded))
        else:
            interval = step_bounds(kinds, estimate.step_time_us / unedited.step_time_us)
    result = (*edited.result, *([_changed(unedited, edited, estimate)] if question.from_trace else []))
    quantiles_us = {}
    if len(times_us):
        quantiles_us = dict(zip(QUANTILES, np.quantile(times_us, QUANTILES).tolist(), strict=True))
        result = (*result, DISTRIBUTION.format(len(times_us), *(us / 1e3 for us in quantiles_us.values())))
    num_touched = int(edited.touched.sum())
    whatif = WhatIfPrediction(
        tuple(map(written, edits)), estimate, num_touched, tuple(unknown), result, interval, quantiles_us
    )
    own = [note for note in estimate.notes if note not in unedited.notes]
    return replace(
        unedited, whatif=whatif, warnings=(*_uncovered(unedited, estimate), *unedited.warnings),
        notes=(*own, *unedited.notes),
    )  # fmt: skip


def _kinds(edits: Sequence[Edit], num_ranks: int, same_cluster: bool) -> tuple[set[str], str]:
    """Kinds of recorded pairs that differ as the edits of a step of `num_ranks` do, and what no pair differs in."""
    from gnnperf.whatif import ChangeCluster, ChangeDevice, ChangeLink, WorldSize

    kinds, kind_of = set(), {ChangeLink: LINK, ChangeCluster: CLUSTER, WorldSize: WORLD_SIZE}
    for edit in edits:
        if isinstance(edit, ChangeDevice):
            return set(), "the device"
        if isinstance(edit, ChangeCluster) and (edit.to is not None or edit.host is not None):
            return set(), "the hosts"
        if isinstance(edit, ChangeLink) and edit.link == "host":
            return set(), "links between host and device"
        if isinstance(edit, WorldSize) and max(edit.ranks, num_ranks) > MOST_RANKS:
            return set(), f"numbers of ranks above {MOST_RANKS}"
        kinds.add(kind_of.get(type(edit), EDIT))
    if not (same_cluster or kinds - {EDIT}):
        return set(), "what changes the cluster"
    return kinds - {LINK} if CLUSTER in kinds else kinds, ""  # pairs on other nodes have another link as well


def _times_us(edits: Sequence[Edit], time_us: Callable[[Sequence[Edit]], float]) -> np.ndarray:
    """[num_steps] times of steps whose sequences differ in length; [0] where no edit states several lengths."""
    from gnnperf.whatif import ScaleSequence  # and the plans' formulas with it

    places = [place for place, edit in enumerate(edits) if isinstance(edit, ScaleSequence) and edit.lengths]
    require(len(places) <= 1, "sequence={lengths: ..}", len(places), "once in a list of edits")
    if not places:
        return np.zeros(0)
    (place,) = places
    steps = edits[place].of_steps()  # type: ignore[attr-defined]  # a ScaleSequence
    of_length = {one: time_us([*edits[:place], one, *edits[place + 1 :]])
                 for one in each(list(dict.fromkeys(steps)), "predicting", "lengths")}  # fmt: skip
    return np.array([of_length[one] for one in steps])


def _changed(unedited: StepPrediction, edited: Edited, estimate: StepPrediction) -> str:
    """How much of the measured work changes, how much of that no model covers, and how much of it sets the step time.

    A copy counts as the node that it is a copy of. A transfer that the wait for untraced ranks hides counts as edited;
    on the critical path it is the part of that wait which the prediction takes for it. Nodes that take as long as
    before, as most calls of a host do, are none of the path that changes.
    """
    nodes, latency_us = unedited.prediction.graph.nodes, np.nan_to_num(unedited.prediction.latency_us)
    prediction = estimate.prediction
    works = nodes["node_type"].isin(ON_DEVICES).to_numpy()
    before_us, moves = latency_us.copy(), np.zeros(len(nodes), dtype=bool)  # [num_nodes] each
    after_us = np.bincount(edited.came_from, np.nan_to_num(prediction.latency_us), len(nodes))
    hidden = edited.touched & (latency_us[edited.came_from] == 0.0)
    moves[edited.came_from[hidden]] = True
    latency_us[edited.came_from[hidden]] = np.nan_to_num(prediction.latency_us)[hidden]
    touched, unmodeled = np.zeros(len(nodes), dtype=bool), np.zeros(len(nodes), dtype=bool)
    touched[edited.came_from[edited.touched]] = True
    unmodeled[edited.came_from[edited.touched & np.isnan(prediction.analytic_latency_us)]] = True
    total, moved, open_ = (latency_us[works & chosen].sum() for chosen in (works, touched, unmodeled))
    share = 100.0 * open_ / moved if moved > 0 else 0.0
    differs = touched & ~np.isclose(after_us, before_us, rtol=1e-9)
    critical = unedited.critical_us[differs].sum()
    edited_critical = estimate.critical_us[edited.touched & differs[edited.came_from]].sum()
    part, transfer = ends(unedited.prediction.graph, Relation.JOINS)
    part = part[moves[transfer]]
    critical += np.clip(before_us[part] - after_us[part], 0.0, unedited.critical_us[part]).sum()
    times_us = (critical, unedited.step_time_us, edited_critical, estimate.step_time_us)
    return CHANGED.format(moved / 1e3, total / 1e3, share, *(us / 1e3 for us in times_us))


def predict_edited(edited: Edited, predictor: Predictor, cluster: ClusterSpec) -> Prediction:
    """The predictor's prediction for the edited graph, on the hardware and with the latencies that edits declare."""
    moved = predictor.on_edit(edited) if isinstance(predictor, Predictors) else predictor
    given = moved.predict(edited.graph, cluster_after(cluster, edited.hardware))
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


def _uncovered(unedited: StepPrediction, edited: StepPrediction) -> tuple[str, ...]:
    """Where the edited graph has more work without a latency, the difference misses it."""
    if edited.uncovered_ops == unedited.uncovered_ops:
        return ()
    before, after = (sum(estimate.uncovered_ops.values()) for estimate in (unedited, edited))
    return (f"What if: nodes that are not covered are left out: {after} with the edits, {before} without.",)
