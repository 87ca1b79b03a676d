"""One round, in a process of its own (new pages, new addresses): `python -m gnnperf.record.calibrate.job JOB`."""

import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import torch

from gnnperf.core import InputError
from gnnperf.record.calibrate.call import Call, calls
from gnnperf.record.calibrate.comm import finish, measure_groups
from gnnperf.record.calibrate.point import Cache, CommPoint, HostPoint, OpPoint, Reading, read_readings, write_readings
from gnnperf.record.calibrate.suite import footprint_bytes
from gnnperf.record.launcher import keep_memory, launch

# Costs of the host that are no single op: the smallest one, and on CUDA copies from pinned memory.

NUM_ROUNDS = 5
CALLS = 200  # below the 1,000 launches that fill a GPU's queue
SMALLEST_OP = "smallest_op_host_us"  # in-place neg of one element, called as a tensor method
COPY_BYTES = {"copy_to_device_64KiB_us": 2**16, "copy_to_device_256MiB_us": 2**28}  # host time to the copy's end


def host_costs_us(device: torch.device) -> dict[HostPoint, float]:
    """Medians over a few passes, in this process."""
    costs = {HostPoint(SMALLEST_OP): _median_us(lambda: _smallest_us(device))}
    if device.type == "cuda":
        costs |= {HostPoint(name): _copy_us(device, num_bytes) for name, num_bytes in COPY_BYTES.items()}
    return costs


def _median_us(measure: Callable[[], float]) -> float:
    measure()
    return statistics.median(measure() for _ in range(NUM_ROUNDS))


def _smallest_us(device: torch.device) -> float:
    one = torch.ones(1, device=device)
    finish(device)
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        one.neg_()
    took = time.perf_counter_ns() - begin
    finish(device)
    return took / 1e3 / CALLS


def _copy_us(device: torch.device, num_bytes: int) -> float:
    given = torch.randn(num_bytes // 4).pin_memory()
    got = torch.zeros_like(given, device=device)

    def copy() -> float:
        finish(device)
        begin = time.perf_counter_ns()
        got.copy_(given, non_blocking=True)
        finish(device)
        return (time.perf_counter_ns() - begin) / 1e3

    return _median_us(copy)


# How long calls take: by the host's clock, and on CUDA also by events behind a full queue.

SHORTEST_US = 50.0  # of what is timed warm by the host's clock: shorter calls are repeated
MOST_REPEATS = 1000
LEAST_SAMPLES, MOST_SAMPLES = 3, 100
SLEEP_CYCLES = 400_000  # of a GPU's clock: 0.2 to 0.4 ms, in which the host gets ahead
QUEUED = 20  # calls between two events
FLUSHED_SHARE = 2  # of the last-level cache is overwritten


@dataclass(frozen=True)
class HostTimer:
    """From the call to the end of its work, by the host's clock."""

    finish: Callable[[], object]  # waits for the device's work
    flush: Callable[[], object]  # overwrites the last-level cache
    launch_included: bool = True  # the host's part of a call is in the time

    def sample_us(self, calls: Sequence[Call], cache: Cache) -> float:
        """Of one call; warm calls are repeated until they take SHORTEST_US together."""
        if cache is Cache.FLUSHED:
            self.flush()
            return self._pass_us(calls, 1)
        once_us = self._pass_us(calls, 1)  # warms the cache
        return self._pass_us(calls, min(MOST_REPEATS, math.ceil(SHORTEST_US / max(once_us * len(calls), 0.1))))

    def _pass_us(self, calls: Sequence[Call], repeats: int) -> float:
        self.finish()
        begin = time.perf_counter_ns()
        for _ in range(repeats):
            for call in calls:
                call()
                self.finish()
        return (time.perf_counter_ns() - begin) / 1e3 / repeats / len(calls)


@dataclass(frozen=True)
class EventTimer:
    """The device's own time: between two events, behind a sleep during which the host queues everything."""

    flush: Callable[[], object]
    launch_included: bool = False

    def sample_us(self, calls: Sequence[Call], cache: Cache) -> float:
        """Of one call on the device; warm calls follow each other without a gap."""
        flushed = cache is Cache.FLUSHED
        repeats = 1 if flushed else max(1, QUEUED // len(calls))
        if not flushed:
            for call in calls:
                call()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(SLEEP_CYCLES * max(1, repeats * len(calls) // 4))
        if flushed:
            self.flush()
        begin.record()
        for _ in range(repeats):
            for call in calls:
                call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / repeats / len(calls)


Timer = HostTimer | EventTimer


def timers(device: torch.device, cache_bytes: int) -> tuple[Timer, ...]:
    """Those of a device: CPU: the host's clock. CUDA: events, and the host's clock with launch and synchronization."""
    buffer = torch.zeros(FLUSHED_SHARE * cache_bytes // 4, dtype=torch.float32, device=device)
    flush = partial(buffer.add_, 1.0)
    if device.type == "cpu":
        return (HostTimer(lambda: None, flush),)
    return EventTimer(flush), HostTimer(torch.cuda.synchronize, flush)


def median_us(timer: Timer, batches: Sequence[Sequence[Call]], cache: Cache, seconds: float) -> tuple[float, int]:
    """(median over samples, how many); samples take the batches in turn, so that contents vary."""
    deadline = time.perf_counter() + seconds
    for batch in batches:  # first calls allocate, plan and compile
        for call in batch:
            call()
    result: list[float] = []
    while len(result) < LEAST_SAMPLES or (len(result) < MOST_SAMPLES and time.perf_counter() < deadline):
        result.append(timer.sample_us(batches[len(result) % len(batches)], cache))
    return statistics.median(result), len(result)


CONTENTS_BYTES = 256 * 2**20  # of all contents of a point, unless one by itself has more
MOST_CONTENTS = 4
LAUNCH_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Job:
    """What one round measures."""

    points: tuple[OpPoint, ...]
    comm: tuple[CommPoint, ...]
    ranks: int  # world size of the collectives
    device: str  # "cpu" or "cuda"
    host_costs: bool  # whether the host's own costs are measured
    cache_bytes: int  # last-level cache of the device
    seed: int  # of contents and order
    seconds: float  # of the round, next to starting processes
    out: str  # where its readings go


def run_job(job: Job) -> list[Reading]:
    """Measure the round here."""
    device = torch.device(job.device)
    comm_s = job.seconds * len(job.comm) / max(2 * len(job.points) + len(job.comm), 1)
    # First: ranks are processes of their own, with this process's cores.
    result: list[Reading] = []
    if job.comm:
        own = Path(job.out).with_suffix(".comm")
        arguments = (job.comm, job.device, job.seed, comm_s, own)
        launch(measure_groups, arguments, world_size=job.ranks, timeout_s=LAUNCH_TIMEOUT_S + comm_s)
        result = read_readings(own)
    if device.type == "cpu":  # as a recorded rank has it: one core, one thread
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        torch.set_num_threads(1)
    if job.host_costs:
        result += [Reading(p, Cache.WARM, True, us, 1) for p, us in host_costs_us(device).items()]
    return result + list(_ops(job, device, job.seconds - comm_s))


def _ops(job: Job, device: torch.device, seconds: float) -> Iterator[Reading]:
    shuffled = random.Random(job.seed)
    generator = torch.Generator(device=device).manual_seed(job.seed)
    points = shuffled.sample(job.points, len(job.points))
    deadline = time.monotonic() + seconds
    own_timers = timers(device, job.cache_bytes)
    for place, point in enumerate(points):
        torch.backends.cuda.matmul.allow_tf32 = point.tf32
        num = CONTENTS_BYTES // max(footprint_bytes(point) * point.tables, 1)
        batches = [calls(point, device, generator) for _ in range(max(1, min(MOST_CONTENTS, num)))]
        ways = [(timer, cache) for timer in own_timers for cache in Cache]
        share_s = max(deadline - time.monotonic(), 0.0) / (len(points) - place) / len(ways)
        for timer, cache in shuffled.sample(ways, len(ways)):
            with torch.no_grad():
                latency_us, num_samples = median_us(timer, batches, cache, share_s)
            yield Reading(point, cache, timer.launch_included, latency_us, num_samples)


def main(path: str) -> int:
    """Run the job in a file; 2 and one message if an op of it does not run."""
    job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
    if job.device == "cpu":
        keep_memory()
    try:
        readings = run_job(job)
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    write_readings(Path(job.out), readings)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
