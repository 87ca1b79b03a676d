"""`python -m gnnperf.record.script OPTIONS -- script.py …`: run somebody's training script and record its steps.

What `gnnperf record -- COMMAND` puts in front of the script; needs torch and the standard library only.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnperf.core.errors import InputError
from gnnperf.core.output.terminal import complain
from gnnperf.record import recorder
from gnnperf.record.marker import Recording, StepMarker


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
    for stretch in ("warmup", "unprofiled", "profiled"):
        parser.add_argument(f"--{stretch}-steps", type=int, required=True)
    parser.add_argument("--module", action="store_true", help="the script is the name of a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _recording(options: argparse.Namespace) -> Callable[[Mapping[str, Any]], Recording]:
    record = recorder.record  # before it notes who calls it

    def begin(seen: Mapping[str, Any]) -> Recording:
        return record(
            options.out,
            workload=options.script if options.module else Path(options.script).stem,
            warmup_steps=options.warmup_steps,
            unprofiled_steps=options.unprofiled_steps,
            profiled_steps=options.profiled_steps,
            **seen,
        )

    return begin


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
