"""Run one command as its reader would, on small inputs, in this process where that is possible."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path

from docs.made.pages import ROOT
from docs.made.tutorial import TERMINAL, words_of
from gnnperf.cli import main as gnnperf

LIMIT_S = 300
ENVIRONMENT = {**TERMINAL, "PYTHONPATH": str(ROOT), "BROWSER": "true", "WANDB_MODE": "offline", "WANDB_SILENT": "true",
               "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
SMALLER = {
    "--nproc-per-node": "2",
    "--memory-gib": "0.2955",  # which divides a small trace into windows
    "--measured": "datasets/cpu-ops/ops.parquet",  # of the device of the trace
}
ONE_EPOCH = ("trainer.max_epochs=1", "trainer.progress_bar=false")


def shortened(words: Sequence[str]) -> list[str]:
    """With the settings that make it short: one epoch, two trials, two seeds, two processes, the shortest time."""
    result = [re.sub(r"^seed=0,1,.*", "seed=0,1", word) for word in words]
    for before, value in SMALLER.items():
        if before in words:
            result[words.index(before) + 1] = value
    if "train.py" in words and "--cfg" not in words and "record" not in words:
        result += ONE_EPOCH
        result += ["hydra.sweeper.n_trials=2"] if "experiment=sweep" in words else []
    elif words[:2] == ["gnnperf", "train"]:
        result += [part for key in ONE_EPOCH for part in ("--set", key)]
    elif words[:2] == ["gnnperf", "calibrate"]:
        result += ["--minutes", "0.05"]
    elif words == ["python", "-m", "research.fitting.cdna"]:
        result += ["cdna.yaml"]  # not the one that the repository ships
    elif words[1] == "examples/train_gnn.py":
        result += ["--epochs", "1"]
    elif words[1] == "examples/transfer.py":
        result += ["--epochs", "1", "--graphs", "1"]
    return result


def called(words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Its exit code, what it prints, and its errors; what is behind > is written."""
    given, _, onto = " \0 ".join(words).partition(" \0 > \0 ")
    words = shortened(given.split(" \0 "))
    if words[0] not in ("gnnperf", "python") or "record" in words:
        result = _in_a_process(words, folder)
    else:
        result = _here(words, folder)
    if onto:
        (folder / onto).write_text(result[1], encoding="utf-8")
    return result


def _in_a_process(words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    with subprocess.Popen(
        words_of(shlex.join(words)), cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | ENVIRONMENT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=LIMIT_S)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
            raise


def _here(words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    environment, path, arguments = dict(os.environ), list(sys.path), sys.argv
    os.environ.update(ENVIRONMENT)
    with chdir(folder), redirect_stdout(_text()) as out, redirect_stderr(_text()) as err, _limit():
        try:
            code = _ended(words)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            sys.path[:], sys.argv = path, arguments
            os.environ.clear()
            os.environ.update(environment)
    return code, _read(out), _read(err)


def _text() -> TextIOWrapper:
    """A stream that keeps what is written, as bytes too."""
    return TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)


def _read(stream: TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def _ended(words: Sequence[str]) -> int:
    if words[0] == "gnnperf":
        return gnnperf(words[1:])
    if words[1] == "-m":
        sys.argv = list(words[2:])
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(words[1:])
        sys.path.insert(0, str(Path(words[1]).parent.resolve()))
        runpy.run_path(words[1], run_name="__main__")
    return 0


@contextmanager
def _limit() -> Iterator[None]:
    """End what takes too long, where the process can."""

    def late(*_: object) -> None:
        raise TimeoutError(f"longer than {LIMIT_S} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
