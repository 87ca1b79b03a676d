"""Intervals of predictions: calibrated on recordings that nothing was fitted on, and given with every prediction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gnnperf import gnn
from gnnperf.analytic import has_forms
from gnnperf.core import Mapped, NodeType, Source, in_turn
from gnnperf.graph import Prediction
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.assembly import Question, assemble, time_us
from gnnperf.predict.ratios import RATIO_FILE, REPEAT, STEP_FILE, ratio_bounds, step_bounds
from gnnperf.predict.request import Mode
from gnnperf.predict.step_prediction import StepPrediction

if TYPE_CHECKING:
    from gnnperf.gnn import Step  # imports torch

# The interval of a step time: from the checkpoint that predicted, for hardware that it was calibrated on.

NO_INTERVAL = (
    "No interval of the step time: it comes with a checkpoint, which is calibrated on its validation runs "
    "(mode=hybrid or analytic, checkpoint=FILE)."
)
OTHER_DEVICE = "No interval of the step time for {}: the checkpoint was calibrated on {} only."
LOWER_BOUND = "No interval of the step time: some work has no latency, so the step time is a lower bound."
OTHER_PROGRAM = (
    "No interval of the step time: the checkpoint has none for programs that training lacks (train again, on five or "
    "more programs)."
)


def with_interval(
    estimate: StepPrediction, intervals: gnn.StepIntervals | None, why: str = NO_INTERVAL
) -> StepPrediction:
    """The prediction with its interval, or with a note that states why there is none; None: for the reason `why`."""
    if intervals is None:
        return _without(estimate, why)
    if estimate.is_lower_bound:
        return _without(estimate, LOWER_BOUND)
    if estimate.hardware not in intervals.devices:
        known = ", ".join(intervals.devices)
        return _without(estimate, OTHER_DEVICE.format(estimate.hardware, known))
    shares = gnn.shares_of(path_table(estimate), estimate.step_time_us)
    bounds_us = intervals.bounds_us(estimate.step_time_us, shares)
    return replace(estimate, step_time_interval_us=bounds_us, interval_level=intervals.level)


def with_trace_interval(estimate: StepPrediction) -> StepPrediction:
    """A step made of measurements, for its own hardware: other steps of such runs, and of each node's class."""
    prediction, measurements = estimate.prediction, estimate.measurements
    if measurements is not None:
        low_us, high_us = measurements.bounds_us(prediction.graph.nodes)
        own = (prediction.source == Source.TRACE) & np.isnan(prediction.latency_low_us)
        low_us = np.where(own, np.fmin(low_us, prediction.latency_us), prediction.latency_low_us)
        high_us = np.where(own, np.fmax(high_us, prediction.latency_us), prediction.latency_high_us)
        estimate = replace(estimate, prediction=replace(prediction, latency_low_us=low_us, latency_high_us=high_us))
    if estimate.is_lower_bound:
        return _without(estimate, LOWER_BOUND)
    bounds_us = step_bounds((REPEAT,), estimate.step_time_us)
    return replace(estimate, step_time_interval_us=bounds_us, interval_level=gnn.shipped_intervals(STEP_FILE).level)


def with_ratio_interval(
    estimate: StepPrediction, own: Prediction, traced: ClusterSpec, cluster: ClusterSpec, question: Question
) -> StepPrediction:
    """A step on other hardware: what its nodes may take at least and at most, scheduled.

    The estimate has `traced_prediction_us`; `own` holds latencies predicted the same way for the traced hardware.
    """
    factors = ratio_bounds(estimate.prediction, own, traced, cluster)
    moved = estimate.prediction
    ends = [replace(moved, latency_us=moved.latency_us * factor, isolated=None, mean_latency_us=None)
            for factor in factors]  # fmt: skip
    low_us, high_us = (time_us(end, question) for end in ends)
    step_us, repeat = estimate.step_time_us, gnn.shipped_intervals(STEP_FILE).log_bounds[REPEAT]
    ends_us = min(low_us, step_us), max(high_us, step_us)
    down, up = (np.hypot(np.log(end_us / step_us), bound) if min(end_us, step_us) > 0 else 0.0
                for end_us, bound in zip(ends_us, repeat, strict=True))  # fmt: skip
    bounds_us = float(step_us * np.exp(-down)), float(step_us * np.exp(up))
    own_us = estimate.traced_prediction_us
    interval = (bounds_us[0] / own_us, bounds_us[1] / own_us) if own_us else None
    known = np.isnan(moved.latency_low_us)
    bounded = replace(
        moved,
        latency_low_us=np.where(known, moved.latency_us * factors[0], moved.latency_low_us),
        latency_high_us=np.where(known, moved.latency_us * factors[1], moved.latency_high_us),
    )
    return replace(estimate, prediction=bounded, ratio_interval=interval, step_time_interval_us=bounds_us,
                   interval_level=gnn.shipped_intervals(RATIO_FILE).level)  # fmt: skip


def path_table(estimate: StepPrediction) -> pd.DataFrame:
    """[num_nodes] what gnnperf.gnn.intervals takes of a step's prediction: node types as groups, and latencies."""
    nodes, prediction = estimate.prediction.graph.nodes, estimate.prediction
    return pd.DataFrame({"group": nodes["node_type"].astype(str), "critical_us": estimate.critical_us,
                         "predicted_us": prediction.scheduled_us, "measured_us": nodes["latency_us"]})  # fmt: skip


def _without(estimate: StepPrediction, why: str) -> StepPrediction:
    return replace(estimate, notes=(*estimate.notes, why))


# Intervals of nodes: from the checkpoint, from GPU generations that were left out, or none.

MEASURED = (Source.MEASURED, Source.TRACE, Source.SCALED)
OTHER = (
    "The trace ran on {ours}, the checkpoint was calibrated on {theirs}: the effect of another processor is unknown, "
    "so there is no interval. Eight or more runs of yours can train it on (experiment=fine_tune)."
)


OF_TRAINING = (
    "The training lacks this program, and intervals of this mode are of the training's programs, so there is none. "
    "mode=hybrid has those of left-out programs."
)


def without_bounds(prediction: Prediction, reason: str) -> Prediction:
    """The prediction without bounds on any node, which were calibrated on other processors or programs, and why."""
    unknown = np.full_like(prediction.latency_us, np.nan)  # [num_nodes]
    warnings = (*prediction.warnings, reason)
    return replace(prediction, latency_low_us=unknown, latency_high_us=unknown, warnings=warnings)


def calibrated_on(provenance: Mapping[str, Any]) -> tuple[gnn.Processor, ...]:
    """The processors of a checkpoint's validation runs; () unknown, as of checkpoints made before they were kept."""
    training = provenance.get("training")
    named = training.get("processors") if isinstance(training, Mapping) else None
    retained = named if isinstance(named, (list, tuple)) else ()
    mappings = [one if isinstance(one, Mapping) else {"name": one} for one in retained]  # older ones: a name
    return tuple(one for one in map(gnn.as_processor, mappings) if one is not None)


def other_processor(trace: Path | None, theirs: Sequence[gnn.Processor]) -> str:
    """What to say where the trace's card names processors and no validation run ran on one of them; else ""."""
    ours = gnn.processors_of([trace]) if trace is not None and theirs else ()
    if not ours or any(one.may_be(other) for one in ours for other in theirs):
        return ""
    return OTHER.format(ours=", ".join(map(str, ours)), theirs=", ".join(map(str, theirs)))


MODELS = (Source.ANALYTIC, Source.GNN, Source.GNN_CALIBRATED)  # what was measured or declared was not left out
LEFT_OUT = (
    "No prediction was calibrated on {device}: intervals ({level:.0%}) of {given:,} of {every:,} kernels follow from "
    "the errors on {count} GPU generations that were left out one by one; all else has none."
)


def with_unseen_device_bounds(
    prediction: Prediction, cluster: ClusterSpec, intervals: gnn.DeviceIntervals | None = None
) -> Prediction:
    """Bounds for kernels that have none, on GPUs that no checkpoint was calibrated on, and a sentence on their origin.

    Intervals hold errors on GPU generations that were left out; None: those that ship, read when they are needed.
    """
    kernels = (prediction.graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()  # [num_nodes]
    requested = np.flatnonzero(kernels & np.isnan(prediction.latency_low_us) & np.isin(prediction.source, MODELS))
    if not has_forms(cluster.device) or not len(requested):
        return prediction
    intervals = intervals or gnn.shipped_intervals()
    nodes = prediction.graph.nodes.iloc[requested]
    family, dtype = (nodes[name].astype(object).to_numpy() for name in ("family", "dtype"))
    bounds = intervals.bounds_us(family, dtype, prediction.latency_us[requested])
    low_us, high_us = prediction.latency_low_us.copy(), prediction.latency_high_us.copy()
    low_us[requested], high_us[requested] = bounds
    given = int(np.isfinite(bounds[0]).sum())
    sentences = LEFT_OUT.format(device=cluster.device.name, given=given, every=int(kernels.sum()),
                                count=len(intervals.generations), level=intervals.level)  # fmt: skip
    warnings = (*prediction.warnings, sentences) if given else prediction.warnings
    return replace(prediction, latency_low_us=low_us, latency_high_us=high_us, warnings=warnings)


def with_calibrated_bounds(prediction: Prediction, cluster: ClusterSpec, intervals: gnn.NodeIntervals) -> Prediction:
    """Bounds from a checkpoint's validation runs, of nodes of a calibrated group that have a model's latency."""
    low_us, high_us = intervals.bounds_us(_table(prediction, cluster.device.name))
    measured = np.isin(prediction.source, MEASURED)
    return replace(prediction, latency_low_us=np.where(measured, np.nan, low_us),
                   latency_high_us=np.where(measured, np.nan, high_us))  # fmt: skip


def calibrated(
    predicted: "Mapping[Mode, Callable[[Step], Prediction]]",
    recordings: "Sequence[Step]",
    unseen: "Sequence[tuple[str, Step, Prediction]]" = (),
    mapped: Mapped = in_turn,
) -> tuple[gnn.Intervals, Mapping[Mode, Sequence[gnn.StepMiss]]]:
    """Intervals of these predictions' nodes and steps, and of each mode what it missed, one per recording.

    Nothing was fitted on the recordings. `unseen` are steps of programs that networks were trained without, named by
    program. They calibrate steps of other programs, and nodes that take a correction there, or a part of it.

    Raises InputError where one cannot be predicted.
    """
    from gnnperf.gnn import fit_node_intervals, fit_step_intervals, run_of

    def of_recording(step: "Step") -> list[tuple[pd.DataFrame, gnn.StepMiss]]:
        return [_missed(run_of(step.run), step, predict(step), mode) for mode, predict in predicted.items()]

    known = mapped(of_recording, recordings, "calibrating intervals")
    # a program's nodes miss together, and its steps
    unknown = mapped(lambda one: _missed(one[0], one[1], one[2], Mode.hybrid), unseen, "calibrating intervals")
    misses = {mode: [of_modes[place][1] for of_modes in known] for place, mode in enumerate(predicted)}
    left_out = [miss for _, miss in unknown]
    tables = [rows for of_modes in known for rows, _ in of_modes]
    tables += [rows[rows["source"] == Source.GNN_CALIBRATED] for rows, _ in unknown]
    devices = [step.cluster.device.name for step in recordings]
    steps = {str(mode): fit_step_intervals(result, gnn.LEVEL, devices) for mode, result in misses.items()}
    others = [step.cluster.device.name for _, step, _ in unseen]
    other = fit_step_intervals(left_out, gnn.LEVEL, others) if left_out else None
    return gnn.Intervals(fit_node_intervals(pd.concat(tables, ignore_index=True), gnn.LEVEL), steps, other), misses


def _missed(run: str, step: "Step", prediction: Prediction, mode: Mode) -> tuple[pd.DataFrame, gnn.StepMiss]:
    """Rows of the nodes with what was measured, and what the step missed; both in the name of `run`."""
    from gnnperf.gnn import miss_of

    estimate = assemble(prediction, question_about(step, mode))
    rows = _table(estimate.prediction, step.cluster.device.name)
    rows = rows.assign(run=run, measured_us=step.nodes["latency_us"].to_numpy())
    return rows, miss_of(run, (estimate.step_time_us, step.step_us), path_table(estimate))


def _table(estimate: Prediction, device: str) -> pd.DataFrame:
    from gnnperf.gnn import node_kinds  # loads numba

    nodes = estimate.graph.nodes
    family = nodes["family"].astype(object).to_numpy()
    return gnn.estimate_table(device, estimate.source, node_kinds(nodes), family, estimate.latency_us)


def question_about(step: "Step", mode: Mode) -> Question:
    """The step as if it had been requested, on its own hardware."""
    label, device = step.graph.steps[0], step.cluster.device.name
    return Question(label, label.step, mode, device, step.cluster.name, device, same_hardware=True, provenance={})
