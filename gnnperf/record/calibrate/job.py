"""One round, in a process of its own (new pages, new addresses): `python -m gnnperf.record.calibrate.job JOB`."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from gnnperf.core.errors import InputError
from gnnperf.core.files import write_text
from gnnperf.record.calibrate.call import Call, calls
from gnnperf.record.calibrate.comm import measure_groups
from gnnperf.record.calibrate.host_costs import host_costs_us
from gnnperf.record.calibrate.point import (
    Cache,
    OpPoint,
    Reading,
    from_json,
    reading_from_json,
    reading_to_json,
)
from gnnperf.record.calibrate.suite import footprint_bytes
from gnnperf.record.calibrate.timer import median_us, timers
from gnnperf.record.launch import launch
from gnnperf.record.network import Link
from gnnperf.record.rank_process import keep_memory

CONTENTS_BYTES = 256 * 2**20  # of all contents of a point, unless one alone has more
MOST_CONTENTS = 4
LAUNCH_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Job:
    """What one round measures.

    Attributes:
        points: JSON lines of ops.
        comm: (link, its world size, JSON lines of its points).
        device: "cpu" or "cuda".
        host_costs: whether the host's own costs are measured.
        cache_bytes: last-level cache of the device.
        seed: of contents and order.
        seconds: of the round, besides starting processes.
        out: where its readings go, one JSON line each.
    """

    points: tuple[str, ...]
    comm: tuple[tuple[dict[str, object], int, tuple[str, ...]], ...]
    device: str
    host_costs: bool
    cache_bytes: int
    seed: int
    seconds: float
    out: str


def job_text(job: Job) -> str:
    """JSON."""
    return json.dumps(asdict(job))


def run_job(job: Job) -> list[Reading]:
    """Measure the round here."""
    device = torch.device(job.device)
    num_comm = sum(len(lines) for _, _, lines in job.comm)
    comm_s = job.seconds * num_comm / max(2 * len(job.points) + num_comm, 1)
    found = list(_comm(job, comm_s))  # first: ranks are processes of their own, with this process's cores
    if device.type == "cpu":
        _on_a_core()
    if job.host_costs:
        found += [Reading(p, Cache.WARM, True, us, 1) for p, us in host_costs_us(device).items()]
    return found + list(_ops(job, device, job.seconds - comm_s))


def _on_a_core() -> None:
    """As a recorded rank has it: one core, one thread."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)


def _ops(job: Job, device: torch.device, seconds: float) -> Iterator[Reading]:
    shuffled = random.Random(job.seed)
    generator = torch.Generator(device=device).manual_seed(job.seed)
    points = [from_json(line) for line in job.points]
    shuffled.shuffle(points)
    deadline = time.monotonic() + seconds
    own_timers = timers(device, job.cache_bytes)
    for place, point in enumerate(points):
        assert isinstance(point, OpPoint)
        torch.backends.cuda.matmul.allow_tf32 = point.tf32
        batches = _batches(point, device, generator)
        ways = [(timer, cache) for timer in own_timers for cache in Cache]
        share_s = max(deadline - time.monotonic(), 0.0) / (len(points) - place) / len(ways)
        for timer, cache in shuffled.sample(ways, len(ways)):
            with torch.no_grad():
                latency_us, num_samples = median_us(timer, batches, cache, share_s)
            yield Reading(point, cache, timer.launch_included, latency_us, num_samples)


def _batches(point: OpPoint, device: torch.device, generator: torch.Generator) -> list[list[Call]]:
    num = CONTENTS_BYTES // max(footprint_bytes(point) * point.tables, 1)
    return [calls(point, device, generator) for _ in range(max(1, min(MOST_CONTENTS, num)))]


def _comm(job: Job, seconds: float) -> Iterator[Reading]:
    for link, world_size, lines in job.comm:
        own = Path(job.out).with_suffix(".comm")
        arguments = (list(lines), job.device, job.seed, seconds / len(job.comm), str(own))
        launch(measure_groups, arguments, world_size=world_size, timeout_s=LAUNCH_TIMEOUT_S + seconds,
               link=Link(**link))  # type: ignore[arg-type]  # fmt: skip
        yield from map(reading_from_json, own.read_text(encoding="utf-8").splitlines())
        own.unlink()


def main(path: str) -> int:
    """Run the job in a file; 2 and one message if an op of it does not run."""
    job = Job(**json.loads(Path(path).read_text(encoding="utf-8")))
    if job.device == "cpu":
        keep_memory()
    try:
        readings = run_job(job)
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    write_text(Path(job.out), "".join(reading_to_json(reading) + "\n" for reading in readings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
