"""StepRecorder: called at the end of every step, it turns clocks and the profiler on and off."""

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

from gnnperf.core import require
from gnnperf.record.peak_memory import HostMemory, PeakMemory, peak_memory_of_this_rank
from gnnperf.record.step_clock import SafeProfile, StepClock, await_idle_threads, clock_of_this_rank, summary

# The execution trace of one step: which tensors each op reads and writes, and no time.
#
# Writing it takes longer than most ops, so it has a step of its own after the profiled ones, without the profiler. Ops
# are numbered alike in both, so that reading a run finds each op of this step in every profiled step.


class ExecutionTraceStep:
    """Watches one step."""

    def __init__(self, scratch: Path) -> None:
        self._path = scratch / "execution_trace.json"
        self._observer: ExecutionTraceObserver | None = None

    def begin(self) -> None:
        """Observe from here."""
        await_idle_threads()
        self._observer = ExecutionTraceObserver().register_callback(str(self._path))
        self._observer.start()

    def end(self) -> None:
        """Observe no more; the file is whole."""
        if self._observer is not None:
            observer, self._observer = self._observer, None
            await_idle_threads()
            observer.stop()
            observer.unregister_callback()

    def content(self) -> bytes:
        """What torch wrote."""
        return self._path.read_bytes()

    close = end  # if the step did not end


PROFILER_WARMUP_STEPS = 2


@dataclass(frozen=True)
class Stretches:
    """Which steps are dropped, timed, and traced.

    0 ... warmup | unprofiled (timed) | 2 under a profiler that does not write yet | profiled (timed, traced)

    After these come the steps whose memory is counted, and the one whose execution trace is written.
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
    def traced_end(self) -> int:
        """The step after the last one that is traced."""
        return self.first_traced + self.profiled

    def is_timed(self, step: int) -> bool:
        """Whether a step is timed without the profiler."""
        return self.warmup <= step < self.first_profiler

    def is_traced(self, step: int) -> bool:
        """Whether a step is timed and traced."""
        return self.first_traced <= step < self.traced_end


class StepRecorder:
    """What `record` yields. Call it at the end of every training step, until `done`."""

    def __init__(self, stretches: Stretches, *, execution_trace: bool) -> None:
        self._stretches = stretches
        self._scratch = tempfile.TemporaryDirectory(prefix="gnnperf-record-")
        self._kineto_path = Path(self._scratch.name) / "kineto.json"
        self._profiler = step_profiler(stretches.profiled)
        self._execution = ExecutionTraceStep(Path(self._scratch.name)) if execution_trace else None
        self.steps_done = 0  # that have ended
        self._begin()

    # Made when first used, after the steps dropped: which device a rank uses shows when it has used it.

    @cached_property
    def _plain_clock(self) -> StepClock:
        return clock_of_this_rank()

    @cached_property
    def _traced_clock(self) -> StepClock:
        return clock_of_this_rank()

    @cached_property
    def _memory(self) -> PeakMemory:
        return peak_memory_of_this_rank()

    @cached_property
    def _watched(self) -> list[HostMemory | ExecutionTraceStep]:
        """Who watches each of the steps after the traced ones."""
        counted = [self._memory] * HostMemory.steps if isinstance(self._memory, HostMemory) else []
        return [*counted, *filter(None, [self._execution])]

    @property
    def done(self) -> bool:
        """Whether all steps requested have run."""
        return self.steps_done >= self._stretches.traced_end and self.steps_done >= self.total_steps

    @property
    def total_steps(self) -> int:
        """Steps requested, of all kinds."""
        return self._stretches.traced_end + len(self._watched)

    def __call__(self) -> None:
        """Mark the end of a step. After the last one: nothing."""
        if self.done:
            return
        self._end()
        self.steps_done += 1
        self._begin()

    def _end(self) -> None:
        step = self.steps_done
        if self._stretches.is_timed(step):
            self._plain_clock.end()
        if self._stretches.is_traced(step):
            self._traced_clock.end()
        if self._stretches.first_profiler <= step < self._stretches.traced_end:
            self._profiler.step()
        if step == self._stretches.traced_end - 1:
            self._profiler.export_chrome_trace(str(self._kineto_path))
        if step >= self._stretches.traced_end:
            self._watched[step - self._stretches.traced_end].end()

    def _begin(self) -> None:
        step = self.steps_done
        if step == self._stretches.first_profiler:
            self._profiler.start()
        if step == self._stretches.warmup:
            self._memory.start()
        if step >= self._stretches.traced_end and not self.done:
            self._watched[step - self._stretches.traced_end].begin()
        if self._stretches.is_timed(step):
            self._plain_clock.begin()
        if self._stretches.is_traced(step):
            self._traced_clock.begin()

    def kineto_trace(self) -> bytes:
        """The profiled steps as Kineto writes them."""
        return self._kineto_path.read_bytes()

    def execution_trace(self) -> bytes | None:
        """The last step as an execution trace, if one was requested."""
        return None if self._execution is None else self._execution.content()

    def step_times(self) -> dict[str, object]:
        """Both step times of this rank."""
        return {
            "without_profiler": summary(self._plain_clock.durations_us()),
            "with_profiler": summary(self._traced_clock.durations_us()),
        }

    def peak_memory(self) -> dict[str, object]:
        """The most that a step of this rank holds."""
        return self._memory.facts()

    def close(self) -> None:
        """Leave nothing running and no scratch file."""
        if self._stretches.first_profiler <= self.steps_done < self._stretches.traced_end:
            self._profiler.stop()
        for watcher in self._watched:
            watcher.close()
        self._scratch.cleanup()


def step_profiler(profiled_steps: int) -> profile:
    """The profiler of a recording, which writes this many steps after its own warm-up."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    return SafeProfile(
        activities=activities,
        schedule=schedule(wait=0, warmup=PROFILER_WARMUP_STEPS, active=profiled_steps, repeat=1),
        record_shapes=True,
        experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=torch.cuda.is_available()),
    )
