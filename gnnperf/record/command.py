"""Rewrite a training command so that its script runs under `gnnperf.record.script`, whatever starts it.

torchrun --nproc-per-node 2        train.py --lr 0.1
torchrun --nproc-per-node 2 -m gnnperf.record.script OPTIONS -- train.py --lr 0.1
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gnnperf.core import InputError

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
    """The command with `-m gnnperf.record.script OPTIONS --` in front of its script.

    Args:
        command: program and arguments, as a shell would pass them.
        options: of `gnnperf.record.script`.

    Raises:
        InputError: no script is found in the command.
    """
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
