"""Record the steps of somebody's training program: what `gnnperf record -- COMMAND` runs inside it.

A step ends when the first optimizer has stepped again:

    optimizer A, optimizer B, A, B, ...      steps:  A ---- A ---- A     (several optimizers)
    micro-batch, micro-batch, A, ...                 A ---- A            (gradient accumulation)

Needs torch and the standard library only.
"""

import atexit
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from gnnperf.core import InputError, complain
from gnnperf.record.step_recorder import StepRecorder
from gnnperf.record.wrap import SETTINGS

RECORDER = "gnnperf.record.recorder"
Recording = AbstractContextManager[StepRecorder]


class StepMarker:
    """Begins a recording at the first step of an optimizer, marks its steps, and ends it when all are recorded."""

    def __init__(self, begin: Callable[[Mapping[str, Any]], Recording]) -> None:
        self._make = begin  # given what is seen of the program: `precision` of the optimizer's parameters
        self._first: object | None = None
        self._recording: Recording | None = None
        self._step: StepRecorder | None = None
        self._ended = False

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped."""
        expected = int(os.environ.get("WORLD_SIZE", "1"))  # of the launcher: none is recorded before all have met
        if self._ended or (expected > 1 and not (dist.is_available() and dist.is_initialized())):
            return
        self._first = self._first or optimizer
        if optimizer is not self._first:
            return
        if self._step is None:
            # float32, or bfloat16+float32; autocast is not seen here.
            kinds = {parameter.dtype for group in optimizer.param_groups for parameter in group["params"]}
            precision = "+".join(sorted(str(kind).removeprefix("torch.") for kind in kinds)) or "unknown"
            recording = self._make({"precision": precision})
            self._step = recording.__enter__()
            self._recording = recording
            return
        self._step()
        if self._step.done:
            self.end(None)

    def end(self, error: BaseException | None) -> None:
        """Mark no more, and end the recording: whole if all steps are there, else as broken."""
        self._ended, self._first = True, None
        recording, self._recording = self._recording, None
        if recording is not None:
            trace: TracebackType | None = None if error is None else error.__traceback__
            recording.__exit__(None if error is None else type(error), error, trace)


def stepped(optimizer: torch.optim.Optimizer) -> None:
    """An optimizer of this process has stepped; the first time, its recording is prepared."""
    marker = _marker()
    if marker is not None:
        marker.stepped(optimizer)


@cache
def _marker() -> StepMarker | None:
    """None: no settings, or the program has loaded the recorder, to mark its steps on its own."""
    if SETTINGS not in os.environ or RECORDER in sys.modules:
        return None
    from gnnperf.record.recorder import record

    settings = json.loads(os.environ[SETTINGS])
    specification = getattr(sys.modules["__main__"], "__spec__", None)  # of `python -m module`
    workload = specification.name if specification else Path(sys.argv[0]).stem
    marker = StepMarker(lambda seen: record(workload=workload, **settings, **seen))
    report = sys.excepthook

    def ended_by(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _end(marker, error)
        if isinstance(error, InputError):
            complain("gnnperf", str(error))
        else:
            report(kind, error, trace)

    sys.excepthook = ended_by
    atexit.register(_end, marker, None)
    return marker


def _end(marker: StepMarker, error: BaseException | None) -> None:
    """End a recording whose steps are not all there: the run is marked broken, the program's own error goes first."""
    try:
        marker.end(error)
    except InputError:
        return  # in the run's card; `gnnperf record` prints it once for all ranks
    except BaseException as raised:
        if raised is not error:
            complain("gnnperf", str(raised))
