"""Marks the steps of a program that knows nothing of it: a step ends when the first optimizer has stepped again.

optimizer A, optimizer B, A, B, ...      steps:  A ---- A ---- A     (several optimizers)
micro-batch, micro-batch, A, ...                 A ---- A            (gradient accumulation)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from gnnperf.record.step_recorder import StepRecorder

Recording = AbstractContextManager[StepRecorder]


class StepMarker:
    """Begins a recording at the first step of an optimizer, marks its steps, and ends it when all are recorded.

    Args:
        begin: makes the recording, given what is seen of the program: `precision` of the optimizer's parameters.
    """

    def __init__(self, begin: Callable[[Mapping[str, Any]], Recording]) -> None:
        self._make = begin
        self._first: object | None = None
        self._recording: Recording | None = None
        self._step: StepRecorder | None = None
        self._ended = False
        register_optimizer_step_post_hook(self._stepped)  # for good: torch calls it while it walks over all hooks

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if self._ended or not _all_ranks_are_there():
            return
        self._first = self._first or optimizer
        if optimizer is not self._first:
            return
        if self._step is None:
            recording = self._make({"precision": _precision(optimizer)})
            self._step = recording.__enter__()
            self._recording = recording
            return
        self._step()
        if self._step.done:
            self.end(None)

    def end(self, error: BaseException | None) -> None:
        """Mark no more, and end the recording: whole if all steps are there, else as broken.

        Raises:
            InputError: fewer steps ran than were asked for.
        """
        self._ended, self._first = True, None
        recording, self._recording = self._recording, None
        if recording is not None:
            trace: TracebackType | None = None if error is None else error.__traceback__
            recording.__exit__(None if error is None else type(error), error, trace)


def _all_ranks_are_there() -> bool:
    """A launcher says how many ranks there will be; none can be recorded before all have met."""
    expected = int(os.environ.get("WORLD_SIZE", "1"))
    return expected <= 1 or (dist.is_available() and dist.is_initialized())


def _precision(optimizer: torch.optim.Optimizer) -> str:
    """The dtypes of what it optimizes: float32, or bfloat16+float32; autocast is not seen here."""
    kinds = {parameter.dtype for group in optimizer.param_groups for parameter in group["params"]}
    return "+".join(sorted(str(kind).removeprefix("torch.") for kind in kinds)) or "unknown"
