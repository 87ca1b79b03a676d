"""`python -m gnnperf.record.script OPTIONS -- script.py …`: run somebody's training script and record its steps.

What `gnnperf record -- COMMAND` puts in front of the script; needs torch and the standard library only.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from gnnperf.core import InputError, complain
from gnnperf.record import recorder
from gnnperf.record.step_recorder import StepRecorder

# Marks the steps of a program that knows nothing of it: a step ends when the first optimizer has stepped again.
#
# optimizer A, optimizer B, A, B, ...      steps:  A ---- A ---- A     (several optimizers)
# micro-batch, micro-batch, A, ...                 A ---- A            (gradient accumulation)

Recording = AbstractContextManager[StepRecorder]
STRETCHES = ("warmup", "unprofiled", "profiled")


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


class RecordsItself(Exception):
    """The script calls `record` on its own; this recording gives way."""


def main(argv: Sequence[str]) -> int:
    """Run the script as if it had been called; its own exit code, or 2 where recording found a fault."""
    options = _parser().parse_args(argv)
    marker = StepMarker(_recording(options))
    recorder.record = _noting(recorder.record, marker, options.note)  # type: ignore[assignment]
    error: BaseException | None = None
    try:
        _run(options.script, options.arguments, module=options.module)
    except InputError as fault:
        complain("gnnperf", str(fault))
        error = fault
        return fault.exit_code
    except BaseException as raised:
        error = None if isinstance(raised, SystemExit) and not raised.code else raised
        raise
    finally:
        _end(marker, error)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gnnperf.record.script")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--note", type=Path, required=True, help="where to say that the script records itself")
    for stretch in STRETCHES:
        parser.add_argument(f"--{stretch}-steps", type=int, required=True)
    parser.add_argument("--module", action="store_true", help="the script is the name of a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _recording(options: argparse.Namespace) -> Callable[[Mapping[str, Any]], Recording]:
    record = recorder.record  # before it notes who calls it
    workload = options.script if options.module else Path(options.script).stem
    steps = {f"{stretch}_steps": getattr(options, f"{stretch}_steps") for stretch in STRETCHES}
    return lambda seen: record(options.out, workload=workload, **steps, **seen)


def _noting(record: Callable[..., Recording], marker: StepMarker, note: Path) -> Callable[..., Recording]:
    """`record` for the script: it goes first."""

    def record_of_the_script(run_dir: str | Path, **settings: Any) -> Recording:
        note.write_text(str(run_dir), encoding="utf-8")
        _end(marker, RecordsItself())
        return record(run_dir, **settings)

    return record_of_the_script


def _end(marker: StepMarker, error: BaseException | None) -> None:
    """End a recording whose steps are not all there: the run is marked broken, the program's own error goes first."""
    try:
        marker.end(error)
    except InputError:
        return  # in the run's card; `gnnperf record` prints it once for all ranks
    except BaseException as raised:
        if error is None or raised is not error:
            complain("gnnperf", str(raised))


def _run(script: str, arguments: list[str], *, module: bool) -> None:
    """As `python script.py …` and `python -m module …` do."""
    sys.argv = [script, *arguments]
    if module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        return
    if not Path(script).is_file():
        raise InputError("no such script", where=script)
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
