"""Which step of a trace is predicted, and which of the three step labels it is compared with."""

from __future__ import annotations

from gnnperf.core import InputError, StepTimeKind
from gnnperf.graph import ExecutionGraph, StepLabel

WINDOW_NAME = "window"  # the step name of a trace without step marks (ExecutionGraph.steps)


def choose_step(graph: ExecutionGraph, step: int | None) -> StepLabel:
    """The step asked for; without one, the step with the (lower) median measured time.

    Steps with a period are preferred: the first step of a window has none and is often the odd one.

    Raises:
        InputError: the graph holds no whole step, or not this one.
    """
    if not graph.steps:
        raise InputError(
            "no whole step in the trace", where=graph.name,
            remedy="record at least one whole step between two step marks",
        )  # fmt: skip
    if step is None:
        with_period = [s for s in graph.steps if s.period_us is not None]
        ranked = sorted(with_period or graph.steps, key=lambda s: (measured_step_time_us(s), s.step))
        return ranked[(len(ranked) - 1) // 2]
    by_number = {s.step: s for s in graph.steps}
    if step not in by_number:
        raise InputError(f"step={step} is not in the trace", where=graph.name, allowed=_listed(graph.steps))
    return by_number[step]


def step_time_kind(label: StepLabel) -> StepTimeKind:
    """Period where the step has one, else makespan; window for a trace without step marks."""
    if label.name == WINDOW_NAME:
        return StepTimeKind.WINDOW
    return StepTimeKind.MAKESPAN if label.period_us is None else StepTimeKind.PERIOD


def measured_step_time_us(label: StepLabel) -> float:
    """The measured value of the step's own kind."""
    return label.makespan_us if label.period_us is None else label.period_us


def other_step(graph: ExecutionGraph, label: StepLabel) -> StepLabel:
    """The nearest other step, the later one on a tie; the step itself if it is the only one."""
    others = [s for s in graph.steps if s.step != label.step]
    return min(others, key=lambda s: (abs(s.step - label.step), -s.step), default=label)


def rank_start_skew_us(label: StepLabel) -> float:
    """How much later the last rank starts the step than the first: the profilers' opening times, mostly."""
    return max(label.rank_start_us) - min(label.rank_start_us) if label.rank_start_us else 0.0


def _listed(steps: tuple[StepLabel, ...]) -> str:
    return ", ".join(f"{s.step} ({s.name})" for s in steps)
