"""Cases in worker processes: limits of time and memory, what was accepted, refused, or failed.

A worker that hangs or dies loses one case: the parent notes it as a failure and starts another worker behind it.
"""

from __future__ import annotations

import faulthandler
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
GRACE_S = 5.0  # before a worker that does not come back from native code is killed


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


class TooSlowError(BaseException):
    """A case took longer than its limit; no reader catches it."""


def case_bytes(reader: str, number: int, seed: int) -> tuple[bytes, random.Random]:
    """The input of a case, and the generator for what else is drawn: the same for the same names, on any machine."""
    rng = random.Random(f"{seed}/{reader}/{number}")
    target = TARGETS["kineto" if reader == WHOLE_PATH else reader]
    return target.make(rng), rng


def run_case(reader: str, number: int, seed: int, folder: Path) -> str:
    """How a case ended: accepted, refused, or the failure."""
    data, rng = case_bytes(reader, number, seed)
    path = folder / TARGETS["kineto" if reader == WHOLE_PATH else reader].file
    path.write_bytes(data)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predicted_step(path, rng) if reader == WHOLE_PATH else TARGETS[reader].read(path)
        return "accepted"
    except InputError:
        return "refused"
    except TooSlowError:
        return f"hang: more than {LIMIT_S:g} s"
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "gnnperf" in f.filename]
        at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        return f"{type(error).__name__} at {at}: {str(error)[:120]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def work(reader: str, numbers: range, seed: int, sender: Connection) -> None:
    """Run cases and send (number, how it ended, seconds, peak bytes) of each."""
    faulthandler.disable()
    signal.signal(signal.SIGALRM, _too_slow)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES + 2**30, resource.RLIM_INFINITY))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for number in numbers:
            sender.send((number, None, 0.0, 0))
            begin = time.perf_counter()
            ended = run_case(reader, number, seed, Path(folder))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if peak - base > LIMIT_BYTES and not ended.startswith(("hang", "Memory")):
                ended = f"memory: {(peak - base) / 2**20:,.0f} MB"
            sender.send((number, ended, time.perf_counter() - begin, peak - base))
    sender.close()


def _too_slow(*_: Any) -> None:
    raise TooSlowError


def run_reader(reader: str, numbers: range, seed: int, until: float) -> Tally:
    """All cases of a reader, or those before the deadline (time.monotonic)."""
    tally = Tally()
    while len(numbers) and time.monotonic() < until:
        numbers = range(_one_worker(reader, numbers, seed, until, tally), numbers.stop)
    return tally


def _one_worker(reader: str, numbers: range, seed: int, until: float, tally: Tally) -> int:
    """Run one worker until it is through, the deadline, or it is lost; the next case."""
    with FORKING:  # else a worker forked meanwhile keeps this pipe open, and the end of this worker goes unnoticed
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=work, args=(reader, numbers, seed, sender), daemon=True
        )
        process.start()
        sender.close()
    current = numbers.start
    try:
        while current < numbers.stop and time.monotonic() < until:
            if not receiver.poll(LIMIT_S + GRACE_S):
                _note(tally, reader, current, f"hang: more than {LIMIT_S:g} s in native code", LIMIT_S, 0)
                return current + 1
            number, ended, took_s, peak = receiver.recv()
            current = number
            if ended is not None:
                _note(tally, reader, number, ended, took_s, peak)
                current = number + 1
        return numbers.stop
    except EOFError:
        process.join()
        if current < numbers.stop:
            _note(tally, reader, current, f"the process died with exit code {process.exitcode}", 0.0, 0)
        return current + 1
    finally:
        process.kill()
        process.join()
        receiver.close()


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
    data, _ = case_bytes(reader, int(number), seed)
    retained = folder / f"{reader}-{number}"
    shutil.rmtree(retained, ignore_errors=True)
    retained.mkdir(parents=True)
    (retained / TARGETS["kineto" if reader == WHOLE_PATH else reader].file).write_bytes(data)
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
