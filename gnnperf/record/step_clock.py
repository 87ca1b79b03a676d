"""Time between leaving one end-of-step mark and reaching the next, on the clock that sees the work finish."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Protocol

import torch


class StepClock(Protocol):
    """Collects step durations."""

    def begin(self) -> None:
        """A step begins."""
        ...

    def end(self) -> None:
        """The step that began last ends."""
        ...

    def durations_us(self) -> list[float]:
        """[num_steps] of all steps that began and ended."""
        ...


class HostClock:
    """For work on the CPU: when the call returns, the step is over."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._durations_us: list[float] = []

    def begin(self) -> None:
        """Note the time."""
        self._began_ns = time.perf_counter_ns()

    def end(self) -> None:
        """Note the duration."""
        self._durations_us.append((time.perf_counter_ns() - self._began_ns) / 1e3)

    def durations_us(self) -> list[float]:
        """[num_steps]."""
        return list(self._durations_us)


class CudaClock:
    """For work on a GPU: events in the current stream, which do not make the host wait and so change nothing."""

    def __init__(self) -> None:
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def begin(self) -> None:
        """Put an event into the stream."""
        events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        events[0].record()
        self._pairs.append(events)

    def end(self) -> None:
        """Put the second event into the stream."""
        self._pairs[-1][1].record()

    def durations_us(self) -> list[float]:
        """[num_steps]; waits for the device."""
        torch.cuda.synchronize()
        return [1e3 * begin.elapsed_time(end) for begin, end in self._pairs if end.query()]


def clock_of_this_machine() -> StepClock:
    """CUDA events where there is a CUDA device in use, else the host's clock."""
    return CudaClock() if torch.cuda.is_available() and torch.cuda.is_initialized() else HostClock()


def summary(durations_us: Sequence[float]) -> dict[str, object]:
    """Median, quartiles and the samples themselves; medians are null without samples."""
    quartiles = statistics.quantiles(durations_us, n=4, method="inclusive") if len(durations_us) > 1 else [None] * 3
    return {
        "steps": len(durations_us),
        "median_us": statistics.median(durations_us) if durations_us else None,
        "quartile_1_us": quartiles[0],
        "quartile_3_us": quartiles[2],
        "samples_us": [round(d, 1) for d in durations_us],
    }
