"""`gnnperf record --out DIR -- COMMAND`: run a training command, unchanged but for who marks its steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gnnperf.core import InputError, complain, require
from gnnperf.record import card

# Rewrite a training command so that its script runs under `gnnperf.record.script`, whatever starts it.
#
# torchrun --nproc-per-node 2        train.py --lr 0.1
# torchrun --nproc-per-node 2 -m gnnperf.record.script OPTIONS -- train.py --lr 0.1

SCRIPT_MODULE = "gnnperf.record.script"
PYTHON = re.compile(r"python[\d.]*")
PYTHON_OPTIONS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
ACCELERATE_MODULE = "accelerate.commands.launch"
ALLOWED = (
    "python, torchrun, accelerate launch, or a launcher in front of python (mpirun, srun): … script.py or -m module"
)

Rest = list[str]


def rewritten(command: Sequence[str], options: Sequence[str]) -> list[str]:
    """The command with `-m gnnperf.record.script OPTIONS --` in front of its script."""
    for position, word in enumerate(command):
        head, rest = list(command[: position + 1]), list(command[position + 1 :])
        rewrite = _rewriter(Path(word).name, rest)
        if rewrite is not None:
            return head + rewrite(rest, list(options))
        if word.endswith(".py") and position == 0:
            return [sys.executable, *_under_python(list(command), list(options))]
    raise InputError(f"no training script in `{' '.join(command)}`", where="gnnperf record", allowed=ALLOWED)


def _rewriter(name: str, rest: Rest) -> Callable[[Rest, list[str]], list[str]] | None:
    if PYTHON.fullmatch(name):
        return _under_python
    if name == "torchrun":
        return _under_torchrun
    return _under_accelerate if name == "accelerate" and "launch" in rest else None


def _under_python(rest: Rest, options: list[str]) -> list[str]:
    """`[-u] script.py …`, `[-u] -m module …`, and launchers that are modules themselves."""
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] not in ("-m", "-c", "-"):
        at += 2 if rest[at] in PYTHON_OPTIONS_WITH_VALUE else 1
    ours, left = rest[:at], rest[at:]
    if left[:1] == ["-m"] and len(left) > 1:
        module, arguments = left[1], left[2:]
        if module in TORCHRUN_MODULES:
            return [*ours, "-m", module, *_under_torchrun(arguments, options)]
        if module == ACCELERATE_MODULE:
            return [*ours, "-m", module, *_under_accelerate(arguments, options)]
        return [*ours, *_script(options, [module, *arguments], module=True)]
    if not left or left[0].startswith("-"):
        raise InputError(f"no script after `python {' '.join(rest[:3])}`", where="gnnperf record", allowed=ALLOWED)
    return [*ours, *_script(options, left, module=False)]


def _under_torchrun(rest: Rest, options: list[str]) -> list[str]:
    """torchrun's own parser says where its options end."""
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    parser.add_argument("--use-env", "--use_env", action="store_true")  # of torch.distributed.launch
    parsed = parser.parse_args(rest)
    at = len(rest) - len(parsed.training_script_args) - 1
    ours, left = rest[:at], rest[at:]
    if parsed.no_python:
        return ours + rewritten(left, options)
    return ours + _script(options, left, module=parsed.module, flag_is_there=parsed.module)


def _under_accelerate(rest: Rest, options: list[str]) -> list[str]:
    """`launch [options] script.py …`: the first word that names a script, or the one after -m."""
    for at, word in enumerate(rest):
        if word in ("-m", "--module") and at + 1 < len(rest):
            return rest[:at] + _script(options, rest[at + 1 :], module=True)
        if word.endswith(".py"):
            return rest[:at] + _script(options, rest[at:], module=False)
    raise InputError("no script after `accelerate launch`", where="gnnperf record", allowed=ALLOWED)


def _script(options: list[str], left: Rest, *, module: bool, flag_is_there: bool = False) -> list[str]:
    start = [SCRIPT_MODULE] if flag_is_there else ["-m", SCRIPT_MODULE]
    return [*start, *options, *(["--module"] if module else []), "--", *left]


PATIENCE_S = 130.0  # a rank 0 on another host waits for all ranks before it writes the card
KINETO_LEVEL = ("KINETO_LOG_LEVEL", "99")  # below it Kineto announces every start and stop
BROKEN_RUN, NO_STEPS = 1, 2
TRAIN_ON = "train for more steps, or lower --warmup-steps, --unprofiled-steps or --profiled-steps"
say = partial(complain, "gnnperf")  # on stderr: stdout belongs to the program that is recorded
UNKNOWN = card.Description(precision="unknown")  # of a program that never got to say


def wrap(command: Sequence[str], out: Path, warmup_steps: int, unprofiled_steps: int, profiled_steps: int) -> int:
    """Run `command` and record the steps of its script into `out`.

    Returns:
        The command's own exit code if it failed (128 + signal if it was killed); else 0 if the run is complete, 1 if it
        is broken, 2 if no step was seen.
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
        card.reserve(out)
        (out / card.CARD).unlink(missing_ok=True)  # of an earlier attempt
        return _judge(out, _run(words), note)


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
    deadline = time.monotonic() + (PATIENCE_S if code == 0 else 0.0)
    while card.status(out) == card.RECORDING and time.monotonic() < deadline:
        time.sleep(card.POLL_S)
    state = card.status(out)
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
    reason = card.reason(out)
    say(f"{out}: broken: {reason}" + (f". What to do: {TRAIN_ON}" if reason.endswith("steps ran") else ""))
    return code or BROKEN_RUN
