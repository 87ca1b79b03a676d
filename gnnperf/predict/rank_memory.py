"""Peak memory of the ranks whose step is predicted, beside what their recorder counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnnperf.predict.step_prediction import RankMemory, StepPrediction
from gnnperf.trace import read_run

if TYPE_CHECKING:
    from gnnperf.predict.api import Request

NO_SHAPES = "Peak memory is unknown: the trace has no shapes of arguments (record_shapes=True)."
NO_TRACE = "Peak memory of a plan is unknown: its graph says which ops run, not which tensors live."


@dataclass(frozen=True)
class MemoryQuestion:
    """What is asked of memory.

    Attributes:
        batches_held: batches like the step's own that the program keeps between steps.
    """

    batches_held: int = 1


def with_memory(answer: StepPrediction, request: Request, question: MemoryQuestion) -> StepPrediction:
    """The answer with the peak memory of each traced rank; torch, which tells what ops return, is loaded here."""
    if request.trace is None:
        return replace(answer, warnings=(*answer.warnings, NO_TRACE))
    from gnnperf.memory.measured import measured_peaks
    from gnnperf.memory.recorded import peak_memory

    run = read_run(request.trace)
    if not all(table.meta.has_shapes for table in run.tables):
        return replace(answer, warnings=(*answer.warnings, NO_SHAPES))
    measured = measured_peaks(run.card)
    peaks = peak_memory(run, batches_held=question.batches_held, step=answer.label.name)
    return replace(answer, peak_memory=tuple(RankMemory(peak, measured.get(peak.rank)) for peak in peaks))
