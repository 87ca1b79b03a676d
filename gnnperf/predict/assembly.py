"""Prediction -> StepPrediction: schedule the latencies, compare, and say what is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnperf.core import WORK_TYPES, InputError, StepTimeKind
from gnnperf.graph import ExecutionGraph, Prediction, StepLabel, in_place, uncovered, uncovered_ops
from gnnperf.hardware import DeviceSpec
from gnnperf.predict.config import Mode
from gnnperf.predict.critical_time import critical_time_us, delay_us, shares
from gnnperf.predict.jitter import with_waits
from gnnperf.predict.step_choice import measured_step_time_us, rank_start_skew_us, step_time_kind
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.schedule import CHECK, NUM_UNROLLED, Jitter, Schedule, schedule, schedule_with_contention

LONGEST_US = 1e14  # three years; outputs hold ns in 64 bits
NOTED_SKEW = 0.05  # share of a measured makespan from which the ranks' different starts are worth a sentence


@dataclass(frozen=True)
class Question:
    """What was asked, and of what: everything about the answer that no model decides.

    Attributes:
        label: the measured step to compare with.
        structure_step: ordinal of the step whose nodes are predicted.
        mode: who answers.
        hardware, cluster: predicted for ("" for replay).
        traced_hardware: the trace's own device ("" unknown).
        same_hardware: whether the measured step ran on `hardware`.
        provenance: versions and hashes.
        warnings: from reading, before any prediction.
        jitter: how much equal ranks differ; None: not at all.
        device: the numbers of `hardware`; None: not known (replay).
        traced_device: those of the trace's own device; None: not known.
    """

    label: StepLabel
    structure_step: int
    mode: Mode
    hardware: str
    cluster: str
    traced_hardware: str
    same_hardware: bool
    provenance: dict[str, Any]
    warnings: tuple[str, ...] = ()
    jitter: Jitter | None = None
    device: DeviceSpec | None = None
    traced_device: DeviceSpec | None = None


def assemble(prediction: Prediction, question: Question) -> StepPrediction:
    """Schedule the predicted latencies of one step and collect the answer.

    Latencies of ops alone are stretched where work overlaps; those of the answer are as scheduled. A node without a
    latency adds nothing to the schedule; the step time is then a lower bound, and says so.
    """
    kind = step_time_kind(question.label)
    unrolled = NUM_UNROLLED if kind is StepTimeKind.PERIOD else 1
    if question.jitter is not None:
        prediction = with_waits(prediction, question.jitter, repeats=unrolled > 1)
    scheduled_us = prediction.scheduled_us
    known_us = np.where(np.isnan(scheduled_us), 0.0, scheduled_us)  # [num_nodes]; the missing ones are named below
    ready_us = _ready_us(prediction)
    if prediction.alone is None or not prediction.alone.nodes.any():
        scheduled = schedule(prediction.graph, known_us, prediction.lag_us, num_unrolled=unrolled, ready_us=ready_us)
    else:
        found = schedule_with_contention(
            prediction.graph, known_us, prediction.lag_us, prediction.alone, num_unrolled=unrolled, ready_us=ready_us
        )
        scheduled, prediction = found.schedule, in_place(prediction, found.latency_us)
    return collect(prediction, scheduled, step_time_us(scheduled, kind), question)


def _ready_us(prediction: Prediction) -> np.ndarray | None:
    """[num_nodes] measured start of each node's rank; None: all ranks start together."""
    if prediction.rank_start_us is None:
        return None
    return prediction.graph.nodes["rank"].map(prediction.rank_start_us).fillna(0.0).to_numpy(np.float64)


def collect(prediction: Prediction, scheduled: Schedule, predicted_us: float, question: Question) -> StepPrediction:
    """The answer from latencies, their schedule and the step time it gives, of the question's kind.

    Raises:
        InputError: that is no time that a file of ours can hold: negative, infinite, too long, or not a number.
    """
    if not 0 <= predicted_us <= LONGEST_US:
        what, where = f"the step is predicted to take {predicted_us:.3g} us", f"graph {prediction.graph.name!r}"
        raise InputError(what, where=where, allowed=f"0 to {LONGEST_US:.0e} us", remedy=CHECK)
    graph, kind = prediction.graph, step_time_kind(question.label)
    critical_us = critical_time_us(graph, scheduled, predicted_us)
    missing = uncovered_ops(graph, prediction.latency_us)
    measured_us = measured_step_time_us(question.label)
    is_work = graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()
    return StepPrediction(
        prediction=prediction,
        schedule=scheduled,
        label=question.label,
        structure_step=question.structure_step,
        mode=question.mode,
        hardware=question.hardware,
        cluster=question.cluster,
        traced_hardware=question.traced_hardware,
        step_time_kind=kind,
        step_time_us=predicted_us,
        is_lower_bound=bool(missing),
        traced_step_time_us=measured_us,
        measured_step_time_us=measured_us if question.same_hardware else None,
        rank_start_skew_us=rank_start_skew_us(question.label),
        rank_step_time_us=dict(zip(graph.ranks, scheduled.rank_step_time_us.tolist(), strict=True)),
        critical_us=critical_us,
        source_share=shares(critical_us[is_work], prediction.source[is_work]),
        critical_path_share=shares(critical_us[is_work], graph.nodes["node_type"][is_work]),
        critical_delay_us=delay_us(graph, scheduled, predicted_us),
        uncovered_ops=missing,
        uncovered_measured_share=_measured_share(graph, uncovered(graph, prediction.latency_us)),
        warnings=_warnings(prediction, question, kind, missing),
        provenance=question.provenance,
        device=question.device,
        traced_device=question.traced_device,
    )


def step_time_us(scheduled: Schedule, kind: StepTimeKind) -> float:
    """Period or makespan, as the kind asks; a window is a makespan without marks."""
    if kind is not StepTimeKind.PERIOD:
        return scheduled.makespan_us
    assert scheduled.period_us is not None, "a period needs an unrolled schedule"
    return scheduled.period_us


def _measured_share(graph: ExecutionGraph, chosen: np.ndarray) -> float | None:
    """Share of the measured node time that the `chosen` [num_nodes] bool nodes hold; None without measurements."""
    measured_us = graph.nodes["latency_us"].to_numpy()
    total_us = np.nansum(measured_us)
    return float(np.nansum(measured_us[chosen]) / total_us) if total_us > 0 else None


def _warnings(
    prediction: Prediction, question: Question, kind: StepTimeKind, missing: dict[str, int]
) -> tuple[str, ...]:
    """Every sentence for the user once, what changes the answer most first."""
    said = (
        *([_uncovered(prediction, missing)] if missing else []),
        *question.warnings,
        *prediction.warnings,
        *prediction.graph.warnings,
        *_comparison(question, kind, prediction.rank_start_us is None),
        *_ranks(prediction.graph),
    )
    return tuple(dict.fromkeys(said))


def _uncovered(prediction: Prediction, missing: dict[str, int]) -> str:
    first = ", ".join(f"{name} ({count})" for name, count in list(missing.items())[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    share = _measured_share(prediction.graph, uncovered(prediction.graph, prediction.latency_us))
    measured = "" if share is None else f" ({100 * share:.1f} % of the trace's measured node time)"
    return (
        f"{sum(missing.values())} nodes of ops {first}{more} are not covered{measured}; the step time excludes them "
        "and is a lower bound."
    )


def _comparison(question: Question, kind: StepTimeKind, starts_together: bool) -> list[str]:
    """What to know before comparing with the measurement."""
    said: list[str] = []
    if math.isnan(question.label.makespan_us):  # nobody ran it
        return said
    if not question.same_hardware:
        on = question.traced_hardware or "unknown hardware"
        said.append(f"The trace was measured on {on}, the prediction is for {question.hardware}: no error is given.")
    skew_us = rank_start_skew_us(question.label)
    starts_together = starts_together and question.mode is not Mode.replay  # a replay keeps the measured starts
    if starts_together and kind is not StepTimeKind.PERIOD and skew_us > NOTED_SKEW * question.label.makespan_us:
        said.append(
            f"The ranks start the measured step up to {skew_us:.0f} us apart; the measured "
            f"{kind} of {question.label.makespan_us:.0f} us contains that, the predicted one does not."
        )
    return said


def _ranks(graph: ExecutionGraph) -> list[str]:
    missing = graph.world_size - sum(graph.multiplicity.values())
    said = f"{missing} of {graph.world_size} ranks were not traced; what they do is not part of the prediction."
    return [said] if missing > 0 else []
