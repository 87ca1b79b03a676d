"""The step without the profiler that recorded it: what runs when none is attached.

with the profiler      host |op|p|op|p|op|p|op|p|        host-bound: every p makes the step longer
without                host |op|op|op|op|
with the profiler      host |op|p|op|p|                  device-bound: kernels wait for kernels; the step stays
                       gpu       |======kernel======|======kernel======|
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnperf.graph import IN_STEPS, TYPICAL_ON_CPU, TYPICAL_ON_GPU, ProfilerCost, cost_of_card, pooled_cost, profiler_us
from gnnperf.predict.assembly import time_us
from gnnperf.predict.step_prediction import Question, StepPrediction, WithoutProfiler
from gnnperf.schedule import MeasuredStep
from gnnperf.trace import read_card

CLOSE = 0.02  # relative: a step without the profiler that needs no calibration
NUM_HALVINGS = 10  # leave 0.3 % of a scale
SCALES = (0.25, 4.0)  # of the cost per event, between which it is calibrated
CALIBRATED = "The profiler's cost is calibrated to the step that was timed without it, so their difference is no error."
OUT_OF_REACH = (
    "Without the profiler, the step is predicted to take {:.4g} ms and was timed at {:.4g} ms: this is the nearest one "
    "with {:g} to {:g} times the profiler's cost. Edits start from the predicted step."
)
LEAST_SHARE = 0.02  # of the step, on its critical path: a smaller cost is not worth a line


@dataclass(frozen=True)
class RecordedProfiler:
    """What is known of the profiler of a trace."""

    cost: ProfilerCost  # per event of a step, from the recorder's card and what is typical
    unprofiled_us: float | None  # median step that the recorder timed without it; None unknown
    is_calibrated: bool = False  # whether the cost is scaled to that step


def recorded_profiler(trace: Path | str | None, on_gpu: bool) -> RecordedProfiler:
    """The profiler's cost in a trace, whose folder may hold a card; on a GPU it traces kernels and costs more per op.

    Raises InputError: the card's numbers cannot be costs.
    """
    card = read_card(Path(trace)) if trace is not None and Path(trace).is_dir() else None
    if card is None:
        return RecordedProfiler(typical_cost(on_gpu), None)
    return RecordedProfiler(typical_cost(on_gpu, cost_of_card(card)), _unprofiled_us(card))


def typical_cost(on_gpu: bool, of_loop: ProfilerCost | None = None) -> ProfilerCost:
    """Of a profiler inside of steps; `of_loop`: in a short loop on the same machine, None: no card states it."""
    return pooled_cost(of_loop, TYPICAL_ON_GPU if on_gpu else TYPICAL_ON_CPU).times(IN_STEPS)


def _unprofiled_us(card: Mapping[str, object]) -> float | None:
    part: object = card
    for key in ("step_time", "without_profiler", "median_us"):
        part = part.get(key) if isinstance(part, Mapping) else None
    if not isinstance(part, int | float) or isinstance(part, bool):
        return None
    return float(part) if math.isfinite(part) and part > 0 else None


def with_profiler_removed(
    result: StepPrediction, measured: MeasuredStep, question: Question, profiler: RecordedProfiler
) -> StepPrediction:
    """Add what the step takes without the profiler, where its cost is on the critical path of the measured step."""
    taken_us, lag_taken_us = profiler_us(measured.graph, measured.latency_us, measured.lag_us, profiler.cost)
    if taken_us[result.critical_us > 0].sum() < LEAST_SHARE * result.step_time_us:
        return result
    step_time_us = _shortened_us(result, question, taken_us, lag_taken_us)
    return replace(result, without_profiler=WithoutProfiler(step_time_us, profiler.cost, profiler.unprofiled_us, False))


def from_cost(result: StepPrediction, measured: MeasuredStep, question: Question, cost: ProfilerCost) -> float:
    """The step of `result` in us, its host work shortened by the cost per event."""
    return _shortened_us(result, question, *profiler_us(measured.graph, measured.latency_us, measured.lag_us, cost))


def calibrated(profiler: RecordedProfiler, step_us: Callable[[ProfilerCost], float]) -> RecordedProfiler:
    """The cost, scaled until the step without it takes what the recorder timed without a profiler.

    Costs per event of a step follow from those of a short loop. They differ by a factor of two, also between recordings
    of one program. Edits need the step itself. Where no scale gives the timed step, the nearest end of SCALES counts.
    """
    timed_us, (low, high) = profiler.unprofiled_us, SCALES
    if timed_us is None or abs(step_us(profiler.cost) / timed_us - 1.0) <= CLOSE:
        return profiler
    ends_us = {scale: step_us(profiler.cost.times(scale)) for scale in SCALES}
    if not ends_us[high] <= timed_us <= ends_us[low]:
        nearest = min(SCALES, key=lambda scale: abs(ends_us[scale] - timed_us))
        return replace(profiler, cost=profiler.cost.times(nearest))
    for _ in range(NUM_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if step_us(profiler.cost.times(middle)) > timed_us else (low, middle)
    return replace(profiler, cost=profiler.cost.times(math.sqrt(low * high)), is_calibrated=True)


def _shortened_us(result: StepPrediction, question: Question, taken_us: np.ndarray, lag_taken_us: np.ndarray) -> float:
    prediction, lag_us = result.prediction, result.prediction.lag_us
    shorter = replace(prediction, latency_us=prediction.scheduled_us - taken_us, mean_latency_us=None,
                      lag_us=None if lag_us is None else lag_us - lag_taken_us)  # fmt: skip
    return time_us(shorter, question)


def from_removed(result: StepPrediction, profiler: RecordedProfiler) -> StepPrediction:
    """Mark a prediction that is without the profiler as a whole; it is compared with the step timed without it."""
    about = WithoutProfiler(result.step_time_us, profiler.cost, profiler.unprofiled_us, True)
    notes = (CALIBRATED, *result.notes) if profiler.is_calibrated else result.notes
    timed_us, warnings = profiler.unprofiled_us, result.warnings
    if timed_us is not None and not profiler.is_calibrated and abs(result.step_time_us / timed_us - 1.0) > CLOSE:
        warnings = (OUT_OF_REACH.format(result.step_time_us / 1e3, timed_us / 1e3, *SCALES), *warnings)
    return replace(result, measured_step_time_us=profiler.unprofiled_us, without_profiler=about, notes=notes,
                   warnings=warnings)  # fmt: skip
