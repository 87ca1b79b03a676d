"""Time between leaving one end-of-step mark and reaching the next, on the clock that sees the work finish.

Python's garbage collector stays out of it: a full collection walks every object that torch made, 200 ms once. It comes
after thousands of small objects, so in one of many runs it falls into one of four traced steps. What exists before the
first step is collected and then left out of later collections; those still happen, and stay short.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch

from gnnperf.record.device import cuda_device


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
    """For work on a GPU: events in its current stream, which do not make the host wait and so change nothing.

    Args:
        index: of the CUDA device.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._began: torch.cuda.Event | None = None
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def begin(self) -> None:
        """Put an event into the stream."""
        self._began = self._mark()

    def end(self) -> None:
        """Put a second event into the stream."""
        assert self._began is not None, "a step ends that has begun"
        self._pairs.append((self._began, self._mark()))
        self._began = None

    def durations_us(self) -> list[float]:
        """[num_steps]; waits for the device."""
        torch.cuda.synchronize(self._index)
        return [1e3 * begin.elapsed_time(end) for begin, end in self._pairs]

    def _mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._index))
        return event


def clock_of_this_rank() -> StepClock:
    """CUDA events where the rank uses a CUDA device, else the host's clock."""
    index = cuda_device()
    return HostClock() if index is None else CudaClock(index)


def summary(durations_us: Sequence[float]) -> dict[str, object]:
    """Median, quartiles and the samples themselves; medians are null without samples."""
    quartiles = statistics.quantiles(durations_us, n=4, method="inclusive") if len(durations_us) > 1 else [None] * 3
    return {
        "steps": len(durations_us),
        "median_us": _rounded(statistics.median(durations_us) if durations_us else None),
        "quartile_1_us": _rounded(quartiles[0]),
        "quartile_3_us": _rounded(quartiles[2]),
        "samples_us": [round(d, 1) for d in durations_us],
    }


@contextmanager
def garbage_set_aside() -> Iterator[None]:
    """Collect, and leave what is there out of collections until the end; a program that did so itself keeps its way."""
    if gc.get_freeze_count() > 0:
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def all_objects() -> list[object]:
    """Every object that the collector knows, those set aside included."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        if frozen:
            gc.freeze()


def _rounded(value_us: float | None) -> float | None:
    return None if value_us is None else round(value_us, 1)
