"""The execution trace of one step: which tensors each op reads and writes, and no time.

Writing it takes longer than most ops, so it has a step of its own after the profiled ones, without the profiler. Ops
are numbered alike in both, so that reading a run finds each op of this step in every profiled step.
"""

from __future__ import annotations

from pathlib import Path

from torch.profiler import ExecutionTraceObserver

from gnnperf.record.idle_threads import await_idle_threads


class ExecutionTraceStep:
    """Watches one step."""

    steps = 1

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

    def close(self) -> None:
        """Stop if the step did not end."""
        self.end()
