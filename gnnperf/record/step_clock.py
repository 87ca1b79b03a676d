"""Time between leaving one end-of-step mark and reaching the next, on the clock that sees the work finish.

Python's garbage collector stays out of it: a full collection walks every object that torch made, 200 ms once. It comes
after thousands of small objects, so in one of many runs it falls into one of four traced steps. What exists before the
first step is collected and then left out of later collections; those still happen, and stay short.
"""

import gc
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.profiler

from gnnperf.record.machine import cuda_device


class HostClock:
    """For work on the CPU: when the call returns, the step is over."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._durations_us: list[float] = []

    def begin(self) -> None:
        """A step begins."""
        self._began_ns = time.perf_counter_ns()

    def end(self) -> None:
        """The step that began last ends."""
        self._durations_us.append((time.perf_counter_ns() - self._began_ns) / 1e3)

    def durations_us(self) -> list[float]:
        """[num_steps] of all steps that began and ended."""
        return list(self._durations_us)


class CudaClock:
    """For work on one CUDA device: events in its current stream, which do not make the host wait and change nothing."""

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


StepClock = HostClock | CudaClock


def clock_of_this_rank() -> StepClock:
    """CUDA events where the rank uses a CUDA device, else the host's clock."""
    index = cuda_device()
    return HostClock() if index is None else CudaClock(index)


def summary(durations_us: Sequence[float]) -> dict[str, object]:
    """Median, quartiles and the samples themselves; medians are null without samples."""
    several = len(durations_us) > 1
    quartiles = statistics.quantiles(durations_us, n=4, method="inclusive") if several else None
    return {
        "steps": len(durations_us),
        "median_us": round(statistics.median(durations_us), 1) if durations_us else None,
        "quartile_1_us": quartiles and round(quartiles[0], 1),
        "quartile_3_us": quartiles and round(quartiles[2], 1),
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


# Before a profiler or observer is taken away: wait for the other threads of this process.
#
# A collective is complete for the thread that waits for it shortly before the thread that did it leaves the
# profiler's callbacks. If the profiler is taken away in between, the callback writes into freed memory, and the
# program dies, once in some hundred recordings (pytorch/pytorch, pull request 180086, of April 2026).
#
#     main thread     wait ------>|done| optimizer | stop the profiler: its memory is freed
#     gloo's thread   reduce |complete| ...preempted... |leave the callback|  <- into what was freed

TASKS = Path("/proc/self/task")
PATIENCE_S = 0.5  # a thread that never rests (a data loader's, a busy poll) does not hold up a recording
LOOK_EVERY_S = 0.001
LOOKS = 2  # in a row: between two waits a thread may be seen asleep


def await_idle_threads(patience_s: float = PATIENCE_S) -> bool:
    """Wait until no other thread of this process runs or wants to, at most `patience_s`; whether that came about.

    Without /proc it is False, after a short wait.
    """
    if not TASKS.is_dir():
        time.sleep(LOOKS * LOOK_EVERY_S)
        return False
    deadline, idle = time.monotonic() + patience_s, 0
    while idle < LOOKS and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        idle = 0 if _busy_threads() else idle + 1
    return idle >= LOOKS


class SafeProfile(torch.profiler.profile):
    """torch's profiler, which ends its collection while no other thread is inside it."""

    def stop_trace(self) -> None:
        """Collect no more; called after the last step's annotation has ended."""
        await_idle_threads()
        super().stop_trace()


def _busy_threads() -> list[int]:
    others = [int(folder.name) for folder in TASKS.iterdir() if int(folder.name) != threading.get_native_id()]
    return [thread for thread in others if _state(thread) in ("R", "D")]


def _state(thread: int) -> str:
    """One letter, after the name in brackets, which may hold anything: proc(5). A thread that has ended: "X"."""
    try:
        text = (TASKS / str(thread) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "X"
    return text.rpartition(")")[2].split()[0]
