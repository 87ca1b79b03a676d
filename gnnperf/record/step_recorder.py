"""StepRecorder: called at the end of every step, it turns clocks and the profiler on and off."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

from gnnperf.errors import require
from gnnperf.record.step_clock import StepClock, clock_of_this_machine, summary

PROFILER_WARMUP_STEPS = 2


@dataclass(frozen=True)
class Stretches:
    """Which steps are dropped, timed, and traced.

    0 ... warmup | unprofiled (timed) | 2 under a profiler that does not write yet | profiled (timed, traced)
    """

    warmup: int
    unprofiled: int
    profiled: int

    def __post_init__(self) -> None:
        """Refuse what cannot be recorded."""
        require(self.warmup >= 0, "warmup_steps", self.warmup, "a whole number >= 0")
        require(self.unprofiled >= 0, "unprofiled_steps", self.unprofiled, "a whole number >= 0")
        require(self.profiled >= 1, "profiled_steps", self.profiled, "a whole number >= 1")

    @property
    def first_profiler(self) -> int:
        """The first step under the profiler."""
        return self.warmup + self.unprofiled

    @property
    def first_traced(self) -> int:
        """The first step that the profiler writes."""
        return self.first_profiler + PROFILER_WARMUP_STEPS

    @property
    def total(self) -> int:
        """All steps."""
        return self.first_traced + self.profiled

    def is_timed(self, step: int) -> bool:
        """Whether a step is timed without the profiler."""
        return self.warmup <= step < self.first_profiler

    def is_traced(self, step: int) -> bool:
        """Whether a step is timed and traced."""
        return self.first_traced <= step < self.total


class StepRecorder:
    """What `record` yields. Call it at the end of every training step, until `done`."""

    def __init__(self, stretches: Stretches, *, execution_trace: bool) -> None:
        self._stretches = stretches
        self._scratch = tempfile.TemporaryDirectory(prefix="gnnperf-record-")
        self._observer = ExecutionTraceObserver() if execution_trace else None
        self._profiler = _profiler(stretches.profiled, self._observer)
        self._plain_clock: StepClock = clock_of_this_machine()
        self._traced_clock: StepClock = clock_of_this_machine()
        self._steps_done = 0
        self._begin()

    @property
    def done(self) -> bool:
        """Whether all steps asked for have run."""
        return self._steps_done >= self.total_steps

    @property
    def total_steps(self) -> int:
        """Steps asked for, of all kinds."""
        return self._stretches.total

    @property
    def steps_done(self) -> int:
        """Steps that have ended so far."""
        return self._steps_done

    def __call__(self) -> None:
        """Mark the end of a step. After the last one: nothing."""
        if self.done:
            return
        self._end()
        self._steps_done += 1
        self._begin()

    def _end(self) -> None:
        step = self._steps_done
        if self._stretches.is_timed(step):
            self._plain_clock.end()
        if self._stretches.is_traced(step):
            self._traced_clock.end()
        if step >= self._stretches.first_profiler:
            self._profiler.step()

    def _begin(self) -> None:
        step = self._steps_done
        if step == self._stretches.first_profiler:
            self._start_profiler()
        if self._stretches.is_timed(step):
            self._plain_clock.begin()
        if self._stretches.is_traced(step):
            self._traced_clock.begin()

    def _start_profiler(self) -> None:
        if self._observer is not None:
            self._observer.register_callback(str(self.execution_trace_path))
        self._profiler.start()

    @property
    def execution_trace_path(self) -> Path:
        """Where torch writes the execution trace."""
        return Path(self._scratch.name) / "execution_trace.json"

    @property
    def with_execution_trace(self) -> bool:
        """Whether one is being written."""
        return self._observer is not None

    def kineto_trace(self) -> bytes:
        """The profiled steps as Kineto writes them."""
        path = Path(self._scratch.name) / "kineto.json"
        self._profiler.export_chrome_trace(str(path))
        return path.read_bytes()

    def execution_trace(self) -> bytes:
        """The profiled steps as an execution trace."""
        assert self._observer is not None
        self._observer.unregister_callback()
        return self.execution_trace_path.read_bytes()

    def step_times(self) -> dict[str, object]:
        """Both step times of this rank."""
        return {
            "without_profiler": summary(self._plain_clock.durations_us()),
            "with_profiler": summary(self._traced_clock.durations_us()),
        }

    def close(self) -> None:
        """Leave nothing running and no scratch file."""
        if self._stretches.first_profiler <= self._steps_done < self.total_steps:
            self._profiler.stop()
        self._scratch.cleanup()


def _profiler(profiled_steps: int, observer: ExecutionTraceObserver | None) -> profile:
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    return profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=PROFILER_WARMUP_STEPS, active=profiled_steps, repeat=1),
        record_shapes=True,
        experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=torch.cuda.is_available()),
        execution_trace_observer=observer,
    )
