"""A fixed piece of work, timed before and after a run: shows whether the machine was the same machine throughout."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

import torch

SIZE = 256
WARMUP_REPEATS, REPEATS = 30, 101
DEVICE_SIZE, DEVICE_REPEATS = 8192, 40
DEVICE_WARMUP_S = 0.5  # an H200 takes 1,390 us per product after rest and 1,231 us after work
PATIENCE_S = 60.0


def probe_us(cores: Sequence[int]) -> list[float]:
    """[num_cores] median time of a float32 product of two SIZE x SIZE matrices on each core by itself."""
    left, right = torch.ones(SIZE, SIZE), torch.ones(SIZE, SIZE)
    result = torch.empty(SIZE, SIZE)
    with _one_thread():
        return [_median_us(left, right, result, core) for core in cores]


def device_probe_us() -> list[float]:
    """[1] median time of a bfloat16 product of two DEVICE_SIZE x DEVICE_SIZE matrices on the current GPU."""
    left = torch.ones(DEVICE_SIZE, DEVICE_SIZE, dtype=torch.bfloat16, device="cuda")
    result = torch.empty_like(left)
    warm_s = time.monotonic() + DEVICE_WARMUP_S
    while time.monotonic() < warm_s:
        torch.mm(left, left, out=result)
        torch.cuda.synchronize()
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(DEVICE_REPEATS)
    ]
    for begin, end in pairs:
        begin.record()
        torch.mm(left, left, out=result)
        end.record()
    torch.cuda.synchronize()
    return [statistics.median(1e3 * begin.elapsed_time(end) for begin, end in pairs[DEVICE_REPEATS // 4 :])]


def drift(before_us: Sequence[float], after_us: Sequence[float]) -> float:
    """The largest relative change of a core's (or device's) median; 0.05 is five percent, in either direction."""
    return max(abs(after / before - 1.0) for before, after in zip(before_us, after_us, strict=True))


class NoiseProbe:
    """Lets a recording begin when the machine is as fast as it has been at its best, or slower by `max_drift`.

    Neighbors on the same hardware slow a machine down for seconds, then let it go again. `best_us` [num_cores] are the
    fastest probes of each core so far (fewer, where nothing is known); a recording waits `patience_s` at most.
    """

    def __init__(self, max_drift: float, best_us: Sequence[float] = (), patience_s: float = PATIENCE_S) -> None:
        self._max_drift, self._patience_s = max_drift, patience_s
        self._best_us = list(best_us)

    def wait(self, probe_us: Callable[[], Sequence[float]]) -> list[float]:
        """Probe until no core is slower than its best by more than `max_drift`, or patience ends; the last probe."""
        deadline = time.monotonic() + self._patience_s
        while True:
            result_us = list(probe_us())
            self._best_us = fastest([self._best_us, result_us])
            if drift(self._best_us[: len(result_us)], result_us) <= self._max_drift or time.monotonic() > deadline:
                return result_us


def fastest(probes_us: Iterable[Sequence[float]]) -> list[float]:
    """[num_cores] of each core over probes, which may be of fewer cores."""
    return [min(us for us in of_core if us is not None) for of_core in zip_longest(*probes_us)]


def _median_us(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, core: int) -> float:
    with _on_core(core):
        samples = [_time_us(left, right, result) for _ in range(WARMUP_REPEATS + REPEATS)]
    return statistics.median(samples[WARMUP_REPEATS:])


def _time_us(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor) -> float:
    began_ns = time.perf_counter_ns()
    torch.mm(left, right, out=result)
    return (time.perf_counter_ns() - began_ns) / 1e3


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
