"""How long calls take: by the host's clock, and on CUDA also by events behind a full queue."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gnnperf.record.calibrate.call import Call
from gnnperf.record.calibrate.point import Cache

SHORTEST_US = 50.0  # of what is timed warm by the host's clock: shorter calls are repeated
MOST_REPEATS = 1000
LEAST_SAMPLES, MOST_SAMPLES = 3, 100
SLEEP_CYCLES = 400_000  # of a GPU's clock: 0.2 to 0.4 ms, in which the host gets ahead
QUEUED = 20  # calls between two events
FLUSHED_SHARE = 2  # of the last-level cache is overwritten


class Timer(Protocol):
    """Times one pass over calls."""

    @property
    def launch_included(self) -> bool:
        """Whether the host's part of a call is in the time."""

    def sample_us(self, calls: Sequence[Call], cache: Cache) -> float:
        """Of one call, the mean over `calls`."""


@dataclass(frozen=True)
class HostTimer:
    """From the call to the end of its work, by the host's clock.

    Attributes:
        finish: waits for the device's work.
        flush: overwrites the last-level cache.
    """

    finish: Callable[[], object]
    flush: Callable[[], object]
    launch_included: bool = True

    def sample_us(self, calls: Sequence[Call], cache: Cache) -> float:
        """Of one call; warm calls are repeated until they take SHORTEST_US together."""
        if cache is Cache.FLUSHED:
            self.flush()
            return self._pass_us(calls, 1)
        once_us = self._pass_us(calls, 1)  # warms the cache
        return self._pass_us(calls, min(MOST_REPEATS, math.ceil(SHORTEST_US / max(once_us * len(calls), 0.1))))

    def _pass_us(self, calls: Sequence[Call], repeats: int) -> float:
        self.finish()
        begin = time.perf_counter_ns()
        for _ in range(repeats):
            for call in calls:
                call()
                self.finish()
        return (time.perf_counter_ns() - begin) / 1e3 / repeats / len(calls)


@dataclass(frozen=True)
class EventTimer:
    """The device's own time: between two events, behind a sleep during which the host queues everything."""

    flush: Callable[[], object]
    launch_included: bool = False

    def sample_us(self, calls: Sequence[Call], cache: Cache) -> float:
        """Of one call on the device; warm calls follow each other without a gap."""
        flushed = cache is Cache.FLUSHED
        repeats = 1 if flushed else max(1, QUEUED // len(calls))
        if not flushed:
            for call in calls:
                call()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(SLEEP_CYCLES * max(1, repeats * len(calls) // 4))
        if flushed:
            self.flush()
        begin.record()
        for _ in range(repeats):
            for call in calls:
                call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / repeats / len(calls)


def timers(device: torch.device, cache_bytes: int) -> tuple[Timer, ...]:
    """Those of a device: CPU: the host's clock. CUDA: events, and the host's clock with launch and synchronization."""
    buffer = torch.zeros(FLUSHED_SHARE * cache_bytes // 4, dtype=torch.float32, device=device)
    flush = buffer.add_
    if device.type == "cpu":
        return (HostTimer(lambda: None, lambda: flush(1.0)),)
    return EventTimer(lambda: flush(1.0)), HostTimer(torch.cuda.synchronize, lambda: flush(1.0))


def median_us(timer: Timer, batches: Sequence[Sequence[Call]], cache: Cache, seconds: float) -> tuple[float, int]:
    """(median over samples, how many); samples take the batches in turn, so that contents vary.

    Args:
        timer: how a sample is taken.
        batches: calls on different contents.
        cache: before each sample.
        seconds: no sample begins after that, but there are at least LEAST_SAMPLES.
    """
    deadline = time.perf_counter() + seconds
    for batch in batches:  # first calls allocate, plan and compile
        for call in batch:
            call()
    found: list[float] = []
    while len(found) < LEAST_SAMPLES or (len(found) < MOST_SAMPLES and time.perf_counter() < deadline):
        found.append(timer.sample_us(batches[len(found) % len(batches)], cache))
    return statistics.median(found), len(found)
