"""`gnnperf record --out DIR -- COMMAND`: run a training command, unchanged but for who marks its steps."""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from gnnperf.core import InputError, complain, require
from gnnperf.record import card

HOOK = Path(__file__).with_name("hook")  # its sitecustomize.py runs in every Python process of the command
PATIENCE_S = 130.0  # a rank 0 on another host waits for all ranks before it writes the card
KINETO_LEVEL = ("KINETO_LOG_LEVEL", "99")  # below it Kineto announces every start and stop
SETTINGS = "GNNPERF_RECORD"  # environment variable: JSON of the run's folder and the numbers of steps
BROKEN_RUN, NO_STEPS = 1, 2
TRAIN_ON = "train for more steps, or lower --warmup-steps, --unprofiled-steps or --profiled-steps"
say = partial(complain, "gnnperf")  # on stderr: stdout belongs to the program that is recorded
UNKNOWN = card.Description(precision="unknown")  # of a program that never got to say


def wrap(command: Sequence[str], out: Path, warmup_steps: int, unprofiled_steps: int, profiled_steps: int,
         onto: TextIO | None = None) -> int:  # fmt: skip
    """Run `command` and record the steps of its script into `out`; the command prints on `onto` (None: as it likes).

    Returns:
        The command's own exit code if it failed (128 + signal if it was killed); else 0 if the run is complete, 1 if it
        is broken, 2 if no step was seen.
    """
    steps = {"warmup": warmup_steps, "unprofiled": unprofiled_steps, "profiled": profiled_steps}
    for name, count in steps.items():
        least = 1 if name == "profiled" else 0
        require(count >= least, f"--{name}-steps", count, f"a whole number >= {least}")
    card.reserve(out)
    (out / card.CARD).unlink(missing_ok=True)  # of an earlier attempt
    settings = {"run_dir": str(out.absolute()), **{f"{name}_steps": count for name, count in steps.items()}}
    return _judge(out, _run(command, {SETTINGS: json.dumps(settings)}, onto))


def _run(command: Sequence[str], settings: Mapping[str, str], onto: TextIO | None) -> int:
    paths = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {KINETO_LEVEL[0]: KINETO_LEVEL[1], **os.environ, **settings, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        process = subprocess.Popen(command, env=environment, stdout=onto)
    except OSError as error:
        raise InputError(f"cannot be started ({error.strerror})", where=command[0]) from error
    while True:
        try:
            code = process.wait()
            return 128 - code if code < 0 else code
        except KeyboardInterrupt:  # it got the signal, too, and ends as it likes
            continue


def _judge(out: Path, code: int) -> int:
    """Say what became of the run, and mark it where its ranks could not."""
    deadline = time.monotonic() + (PATIENCE_S if code == 0 else 0.0)
    while card.status(out) == card.RECORDING and time.monotonic() < deadline:
        time.sleep(card.POLL_S)
    state = card.status(out)
    if state == card.COMPLETE:
        say(f"{out}: complete" + (f", though the command ended with exit code {code} later" if code else ""))
        return code
    if state is None and code == 0:
        card.write_status(out, UNKNOWN, card.BROKEN, "no optimizer step was seen")
        say(f"{out}: no step was seen: no torch.optim optimizer stepped, no process group of WORLD_SIZE ranks was "
            "initialized, or the script records itself: then run it without `gnnperf record`")  # fmt: skip
        return NO_STEPS
    if state != card.BROKEN:
        card.write_status(out, UNKNOWN, card.BROKEN, f"the command ended with exit code {code}")
    reason = card.reason(out)
    say(f"{out}: broken: {reason}" + (f". What to do: {TRAIN_ON}" if reason.endswith("steps ran") else ""))
    return code or BROKEN_RUN
