"""Rounds: the whole schedule again, in a new process and another order each time, until the time is used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnnperf.core import InputError, each
from gnnperf.record.calibrate.interval import Interval, intervals
from gnnperf.record.calibrate.job import Job, job_text
from gnnperf.record.calibrate.point import Cache, Point, Reading, reading_from_json

LEAST_ROUNDS, MOST_ROUNDS = 5, 15
ROUND_S = 40.0  # what a round should take at least, when there is time for more than five
START_S = 8.0  # of a round's time goes into starting processes and loading torch
LEAST_MEASURING_S = 1.0
KINETO_LOG_LEVEL = "99"  # it announces every start and stop otherwise


@dataclass(frozen=True)
class Way:
    """What one interval is of: a point, and how it was timed."""

    point: Point
    cache: Cache
    launch_included: bool


@dataclass(frozen=True)
class Result:
    """One way's value and interval, us, and what they rest on."""

    way: Way
    latency_us: Interval
    round_medians_us: tuple[float, ...]
    num_samples: int


def num_rounds(minutes: float) -> int:
    """How often the schedule is repeated within `minutes`: at least five times, however little time there is."""
    return max(LEAST_ROUNDS, min(MOST_ROUNDS, int(minutes * 60 / ROUND_S)))


def run_rounds(job: Job, minutes: float) -> list[list[Reading]]:
    """Readings per round."""
    total = num_rounds(minutes)
    end = time.monotonic() + minutes * 60
    result: list[list[Reading]] = []
    for index in each(range(total), "measuring", "rounds"):
        left_s = end - time.monotonic()
        seconds = max(left_s / (total - index) - START_S, LEAST_MEASURING_S)
        result.append(_in_a_process(replace(job, seed=_seed(index), seconds=seconds)))
    return result


def _seed(index: int) -> int:
    """Another order and other contents in every round of every calibration."""
    return int.from_bytes(os.urandom(4), "little") + index


def _in_a_process(job: Job) -> list[Reading]:
    with tempfile.TemporaryDirectory(prefix="gnnperf-calibrate-") as folder:
        job = replace(job, out=str(Path(folder) / "readings.jsonl"))
        path = Path(folder) / "job.json"
        path.write_text(job_text(job), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "gnnperf.record.calibrate.job", str(path)],
            env={**os.environ, "KINETO_LOG_LEVEL": KINETO_LOG_LEVEL}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == InputError.exit_code:
            raise InputError(done.stderr.strip().splitlines()[-1].removesuffix("."))
        if done.returncode != 0:
            raise InputError(f"a round {_how_it_ended(done)}", where="gnnperf calibrate",
                             remedy="nothing was written; calibrate again, with nothing else running")  # fmt: skip
        return [reading_from_json(line) for line in Path(job.out).read_text(encoding="utf-8").splitlines()]


def _how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    """Killed, as for memory, or its last word."""
    if done.returncode < 0:
        return f"was killed by {signal.Signals(-done.returncode).name}"
    sentences = done.stderr.strip().splitlines()
    return f"ended with exit code {done.returncode} ({sentences[-1] if sentences else 'it said nothing'})"


def results(rounds: Sequence[Sequence[Reading]]) -> list[Result]:
    """One per way that every round has read; the order of the first round's ways does not matter."""
    medians: dict[Way, list[float]] = defaultdict(list)
    samples: dict[Way, int] = defaultdict(int)
    for way, reading in _readings(rounds):
        medians[way].append(reading.latency_us)
        samples[way] += reading.num_samples
    whole = {way: values for way, values in medians.items() if len(values) > 1}
    result = intervals(whole, {way: _kind(way) for way in whole})
    return [Result(way, result[way], tuple(whole[way]), samples[way]) for way in sorted(whole, key=repr)]


def _readings(rounds: Sequence[Sequence[Reading]]) -> Iterator[tuple[Way, Reading]]:
    for readings in rounds:
        for reading in readings:
            yield Way(reading.point, reading.cache, reading.launch_included), reading


def _kind(way: Way) -> tuple[str, Cache, bool]:
    """Points of a kind have similar spreads: ops, collectives and host costs, by how they were timed."""
    return type(way.point).__name__, way.cache, way.launch_included
