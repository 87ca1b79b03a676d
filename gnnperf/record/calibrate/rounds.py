"""Rounds: the whole schedule again, in a new process and another order each time, until the time is used."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np

from gnnperf.core import InputError, each
from gnnperf.hardware import Measured
from gnnperf.record.calibrate.job import COPY_BYTES, SMALLEST_OP, Job
from gnnperf.record.calibrate.point import (
    Cache,
    CommPoint,
    Direction,
    HostPoint,
    OpPoint,
    Point,
    Reading,
    intervals,
    read_readings,
)
from gnnperf.record.calibrate.suite import FLOOR_OP

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
    latency_us: Measured
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
        seed = int.from_bytes(os.urandom(4), "little")  # another order and other contents in every round
        result.append(_in_a_process(replace(job, seed=seed, seconds=seconds)))
    return result


def _in_a_process(job: Job) -> list[Reading]:
    with tempfile.TemporaryDirectory(prefix="gnnperf-calibrate-") as folder:
        job = replace(job, out=str(Path(folder) / "readings.json"))
        path = Path(folder) / "job.json"
        path.write_bytes(msgspec.json.encode(job))
        done = subprocess.run(
            [sys.executable, "-m", "gnnperf.record.calibrate.job", str(path)],
            env={**os.environ, "KINETO_LOG_LEVEL": KINETO_LOG_LEVEL}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == InputError.exit_code:
            raise InputError(done.stderr.strip().splitlines()[-1].removesuffix("."))
        if done.returncode != 0:
            sentence = (done.stderr.strip().splitlines() or ["no error message"])[-1]
            how = f"ended with exit code {done.returncode} ({sentence})"
            if done.returncode < 0:  # as for memory
                how = f"was killed by {signal.Signals(-done.returncode).name}"
            raise InputError(f"a round {how}", where="gnnperf calibrate",
                             remedy="nothing was written; calibrate again, with nothing else running")  # fmt: skip
        return read_readings(Path(job.out))


def results(rounds: Sequence[Sequence[Reading]]) -> list[Result]:
    """One per way that every round has read; the order of the first round's ways does not matter."""
    medians: dict[Way, list[float]] = defaultdict(list)
    samples: dict[Way, int] = defaultdict(int)
    for reading in chain.from_iterable(rounds):
        way = Way(reading.point, reading.cache, reading.launch_included)
        medians[way].append(reading.latency_us)
        samples[way] += reading.num_samples
    whole = {way: values for way, values in medians.items() if len(values) > 1}
    # Points of a kind have similar spreads: ops, collectives and host costs, by how they were timed.
    kinds = {way: (type(way.point), way.cache, way.launch_included) for way in whole}
    result = intervals(whole, kinds)
    return [Result(way, result[way], tuple(whole[way]), samples[way]) for way in sorted(whole, key=repr)]


# From latencies to a device's numbers: sustained rates, launch floor, and what links do.

PRODUCTS = ("aten::mm", "aten::bmm", "aten::_scaled_mm", "aten::_int_mm")
STREAMS = {"aten::copy_": "copy", "aten::sum": "read", "aten::add.out": "triad"}
PLAIN_DTYPES = {"float8_e4m3fn": "float8"}
MATRIX_UNITS = ("float16", "bfloat16", "float8", "int8")  # whose products on a GPU run in matrix units
FAR_BEYOND = 3.0  # times the last-level cache: what a stream moves then comes from memory


def device_time(results: Iterable[Result]) -> list[Result]:
    """Ways without the host's part where there are any (CUDA), else all (CPU: the call is the work)."""
    outcome = list(results)
    apart = [r for r in outcome if not r.way.launch_included]
    return apart or outcome


def inverse(amount: float, latency_us: Measured) -> Measured:
    """amount per second."""
    return Measured(*(amount / us * 1e6 for us in (latency_us.value, latency_us.high, latency_us.low)))


def _best(rates: Iterable[tuple[str, Measured]]) -> dict[str, Measured]:
    best: dict[str, Measured] = {}
    for key, rate in rates:
        if key not in best or rate.value > best[key].value:
            best[key] = rate
    return best


def flops_per_s(results: Iterable[Result], kind: str) -> dict[str, Measured]:
    """Sustained FLOP rate by key of DeviceSpec.flops_per_s: the best of the products of that dtype, warm.

    Keys of GPUs: float32 without, float32_matrix with TF32; float64 and the rest as the library runs them.
    """
    warm = [(r.way.point, r.latency_us) for r in device_time(results) if r.way.cache is Cache.WARM]
    return _best(
        (_rate_key(point, kind), inverse(point.flops, latency_us))
        for point, latency_us in warm
        if isinstance(point, OpPoint) and point.op in PRODUCTS and point.flops is not None
        and point.direction is Direction.FORWARD
    )  # fmt: skip


def _rate_key(point: OpPoint, kind: str) -> str:
    dtype = PLAIN_DTYPES.get(point.dtypes[0], point.dtypes[0])
    in_matrix_units = kind == "gpu" and (dtype in MATRIX_UNITS or (dtype == "float32" and point.tf32))
    return f"{dtype}_matrix" if in_matrix_units else dtype


def bandwidths(results: Iterable[Result], cache_bytes: float) -> dict[str, Measured]:
    """Bytes/s of copy, read and triad: from memory ("copy") and, where all fits, from the cache ("copy_in_cache").

    The best of their sizes: from memory, flushed and at least FAR_BEYOND times the cache; in cache, warm and at most
    half of it.
    """
    rates = []
    for result in device_time(results):
        point, cache = result.way.point, result.way.cache
        if isinstance(point, OpPoint) and point.op in STREAMS and point.moved_bytes is not None:
            rate = inverse(point.moved_bytes, result.latency_us)
            if point.moved_bytes >= FAR_BEYOND * cache_bytes and cache is Cache.FLUSHED:
                rates.append((STREAMS[point.op], rate))
            elif point.moved_bytes <= 0.5 * cache_bytes and cache is Cache.WARM:
                rates.append((f"{STREAMS[point.op]}_in_cache", rate))
    return _best(rates)


def launch_floor_us(results: Iterable[Result]) -> Measured:
    """CUDA: the shortest kernel, warm. CPU: the smallest op, called as programs call it (a tensor's method)."""
    outcome = list(results)
    apart = device_time(outcome)
    if len(apart) == len(outcome) and SMALLEST_OP in (costs := host_costs(outcome)):
        return costs[SMALLEST_OP]
    for result in apart:
        point = result.way.point
        if isinstance(point, OpPoint) and point.op == FLOOR_OP and result.way.cache is Cache.WARM:
            return result.latency_us
    raise LookupError(FLOOR_OP)


def host_costs(results: Iterable[Result]) -> dict[str, Measured]:
    """The host's own costs, us, by name."""
    return {r.way.point.quantity: r.latency_us for r in results if isinstance(r.way.point, HostPoint)}


@dataclass(frozen=True)
class LinkFit:
    """latency + bytes / bandwidth, and how well it fits (largest relative error over the sizes)."""

    latency_us: float
    bandwidth_bytes_per_s: float
    worst_relative_error: float


def fit_link(points: Sequence[tuple[float, float]]) -> LinkFit:
    """Fit (bytes, us) with least squares of *relative* errors, so that small messages count like large ones.

    Minimizes sum((a + b s - t)^2 / t^2) over a >= 0, b > 0.
    """
    size, us = np.array(points).T
    if len(set(size)) < 2:
        raise ValueError("a link needs two sizes")
    slope, floor = np.polyfit(size, us, 1, w=1 / us)
    if floor < 0:  # through the origin instead
        floor, slope = 0.0, (size / us).sum() / ((size / us) ** 2).sum()
    if slope <= 0:
        raise ValueError("larger messages are not slower")
    return LinkFit(float(floor), float(1e6 / slope), float((abs(floor + slope * size - us) / us).max()))


def host_link(results: Iterable[Result]) -> LinkFit | None:
    """From copies between pinned host memory and the device; None on a CPU."""
    costs = host_costs(results)
    outcome = [(float(num_bytes), costs[name].value) for name, num_bytes in COPY_BYTES.items() if name in costs]
    return fit_link(outcome) if len(outcome) > 1 else None


def links(results: Iterable[Result]) -> dict[str, LinkFit]:
    """Link -> fit of its send/receive."""
    points: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        point = result.way.point
        if isinstance(point, CommPoint) and point.op == "send":
            points.setdefault(point.link, []).append((float(point.num_bytes), result.latency_us.value))
    return {link: fit_link(outcome) for link, outcome in points.items() if len(outcome) > 1}
