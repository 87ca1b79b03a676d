"""`gnnperf record --out DIR -- COMMAND`: run a training command, unchanged but for who marks its steps."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gnnperf.core.errors import InputError, require
from gnnperf.core.output.terminal import complain
from gnnperf.record import card
from gnnperf.record.command import rewritten

PATIENCE_S = 130.0  # a rank 0 on another host waits for all ranks before it writes the card
KINETO_LEVEL = ("KINETO_LOG_LEVEL", "99")  # below it Kineto announces every start and stop
BROKEN_RUN, NO_STEPS = 1, 2
say = partial(complain, "gnnperf")  # on stderr: stdout belongs to the program that is recorded
UNKNOWN = card.Description(precision="unknown")  # of a program that never got to say


def wrap(command: Sequence[str], out: Path, warmup_steps: int, unprofiled_steps: int, profiled_steps: int) -> int:
    """Run `command` and record the steps of its script into `out`.

    Args:
        command: torchrun, python, accelerate launch, mpirun … python: with a script or a module.
        out: the run directory.
        warmup_steps: steps dropped first.
        unprofiled_steps: steps timed without the profiler.
        profiled_steps: steps timed and traced.

    Returns:
        The command's own exit code if it failed (128 + signal if it was killed); else 0 if the run is complete, 1 if it
        is broken, 2 if no step was seen.

    Raises:
        InputError: no script in the command, it cannot be started, or `out` cannot be used.
    """
    steps = {"warmup": warmup_steps, "unprofiled": unprofiled_steps, "profiled": profiled_steps}
    for name, count in steps.items():
        least = 1 if name == "profiled" else 0
        require(count >= least, f"--{name}-steps", count, f"a whole number >= {least}")
    with tempfile.TemporaryDirectory(prefix="gnnperf-record-") as scratch:
        note = Path(scratch) / "note"
        options = ["--out", str(out.absolute()), "--note", str(note)]
        options += [word for name, count in steps.items() for word in (f"--{name}-steps", str(count))]
        words = rewritten(command, options)
        _claim(out)
        return _judge(out, _run(words), note)


def _claim(out: Path) -> None:
    """A directory for the run; a card that an earlier attempt left must not speak for this one."""
    from gnnperf.record.recorder import claim

    claim(out)
    (out / card.CARD).unlink(missing_ok=True)


def _run(words: Sequence[str]) -> int:
    environment = {KINETO_LEVEL[0]: KINETO_LEVEL[1], **os.environ}
    try:
        process = subprocess.Popen(words, env=environment)
    except OSError as error:
        raise InputError(f"cannot be started ({error.strerror})", where=words[0]) from error
    while True:
        try:
            code = process.wait()
            return 128 - code if code < 0 else code
        except KeyboardInterrupt:  # it got the signal, too, and ends as it likes
            continue


def _judge(out: Path, code: int, note: Path) -> int:
    """Say what became of the run, and mark it where its ranks could not."""
    state = _final_status(out, patient=code == 0)
    if note.exists():
        say(f"the script records itself, into {note.read_text(encoding='utf-8')}; nothing was recorded into {out}")
        return code
    if state == card.COMPLETE:
        say(f"{out}: complete" + (f", though the command ended with exit code {code} later" if code else ""))
        return code
    if state is None and code == 0:
        card.write_status(out, UNKNOWN, card.BROKEN, "no optimizer step was seen")
        say(f"{out}: no step was seen: no torch.optim optimizer stepped, or no process group of WORLD_SIZE ranks was "
             "initialized. Use `with record(...)` of gnnperf.record in the script instead")  # fmt: skip
        return NO_STEPS
    if state != card.BROKEN:
        card.write_status(out, UNKNOWN, card.BROKEN, f"the command ended with exit code {code}")
    say(f"{out}: broken: {card.reason(out)}")
    return code or BROKEN_RUN


def _final_status(out: Path, *, patient: bool) -> str | None:
    deadline = time.monotonic() + (PATIENCE_S if patient else 0.0)
    while card.status(out) == card.RECORDING and time.monotonic() < deadline:
        time.sleep(card.POLL_S)
    return card.status(out)
