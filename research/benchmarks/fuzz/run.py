"""Cases in worker processes: limits of time and memory, what was accepted, refused, or failed.

A worker that hangs or dies loses one case: the parent notes it as a failure and starts another worker behind it.
"""

import multiprocessing
import random
import resource
import shutil
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gnnperf.core import InputError
from research.benchmarks.fuzz.targets import TARGETS, WHOLE_PATH, predicted_step

LIMIT_S = 20.0
LIMIT_BYTES = 2 * 2**30
FORKING = threading.Lock()
FORK: Any = multiprocessing.get_context("fork")


@dataclass
class Tally:
    """Of one reader."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    failures: dict[str, str] = field(default_factory=dict)  # case -> how it failed
    slowest_s: float = 0.0
    total_s: float = 0.0
    peak_bytes: int = 0


def case_bytes(reader: str, number: int, seed: int) -> tuple[bytes, random.Random]:
    """The input of a case, and the generator for what else is drawn: the same for the same names, on any machine."""
    rng = random.Random(f"{seed}/{reader}/{number}")
    return _target(reader).make(rng), rng


def read_case(reader: str, number: int, seed: int, folder: Path) -> object:
    """Write the input of a case and read it."""
    data, rng = case_bytes(reader, number, seed)
    path = folder / _target(reader).file
    path.write_bytes(data)
    return predicted_step(path, rng) if reader == WHOLE_PATH else _target(reader).read(path)


def _target(reader: str) -> Any:
    return TARGETS["kineto" if reader == WHOLE_PATH else reader]


def run_reader(reader: str, numbers: range, seed: int, until: float) -> Tally:
    """All cases of a reader, or those before the deadline (time.monotonic)."""
    tally = Tally()
    while len(numbers) and time.monotonic() < until:
        with FORKING:  # else a worker forked meanwhile keeps this pipe open, and the end of this worker goes unnoticed
            receiver, sender = FORK.Pipe(duplex=False)
            worker = FORK.Process(target=_work, args=(reader, numbers, seed, until, sender), daemon=True)
            worker.start()
            sender.close()
        count = tally.cases
        try:
            while (case := receiver.recv()) is not None:
                _note(tally, reader, *case)
            worker.kill()  # Python's own shutdown can fail in a process that was forked from a thread
            worker.join()
            return tally
        except EOFError:
            worker.join()
        numbers = numbers[tally.cases - count :]
        if len(numbers):
            hung = worker.exitcode == -signal.SIGALRM
            ended = f"hang: more than {LIMIT_S:g} s" if hung else f"the process died with exit code {worker.exitcode}"
            _note(tally, reader, numbers[0], ended, LIMIT_S if hung else 0.0, 0)
            numbers = numbers[1:]
    return tally


def _work(reader: str, numbers: range, seed: int, until: float, sender: Connection) -> None:
    """Run cases and send (number, how it ended, seconds, peak bytes) of each, None at the end; SIGALRM ends a hang."""
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES + 2**30, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for number in numbers:
            if (begin := time.monotonic()) >= until:
                break
            signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
            ended = _ended(reader, number, seed, Path(folder))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - base
            if peak > LIMIT_BYTES and not ended.startswith("Memory"):
                ended = f"memory: {peak / 2**20:,.0f} MB"
            sender.send((number, ended, time.monotonic() - begin, peak))
        signal.setitimer(signal.ITIMER_REAL, 0)
    sender.send(None)


def _ended(reader: str, number: int, seed: int, folder: Path) -> str:
    """How a case ended: accepted, refused, or the failure."""
    try:
        read_case(reader, number, seed, folder)
        return "accepted"
    except InputError:
        return "refused"
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "gnnperf" in f.filename]
        at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        return f"{type(error).__name__} at {at}: {str(error)[:120]}"


def _note(tally: Tally, reader: str, number: int, ended: str, took_s: float, peak: int) -> None:
    tally.cases += 1
    tally.accepted += ended == "accepted"
    tally.refused += ended == "refused"
    tally.slowest_s, tally.total_s = max(tally.slowest_s, took_s), tally.total_s + took_s
    tally.peak_bytes = max(tally.peak_bytes, peak)
    if ended not in ("accepted", "refused"):
        tally.failures[f"{reader}:{number}"] = ended


def keep(case: str, seed: int, ended: str, folder: Path) -> Path:
    """Write the input of a failed case and how it failed."""
    reader, _, number = case.partition(":")
    retained = folder / f"{reader}-{number}"
    shutil.rmtree(retained, ignore_errors=True)
    retained.mkdir(parents=True)
    (retained / _target(reader).file).write_bytes(case_bytes(reader, int(number), seed)[0])
    (retained / "failure.txt").write_text(f"python -m research.benchmarks.fuzz --seed {seed} --case {case}\n{ended}\n")
    return retained


def rows(tallies: Mapping[str, Tally]) -> Iterator[str]:
    """The table."""
    yield "| reader | cases | accepted | refused | failures | slowest s | peak MB | cases/s |"
    yield "|---|---|---|---|---|---|---|---|"
    for reader, t in tallies.items():
        rate = t.cases / t.total_s if t.total_s else 0.0
        yield (
            f"| {reader} | {t.cases:,} | {t.accepted:,} | {t.refused:,} | {len(t.failures)} | {t.slowest_s:.2f} "
            f"| {t.peak_bytes / 2**20:,.0f} | {rate:,.0f} |"
        )
