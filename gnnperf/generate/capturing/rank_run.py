"""One rank of a program, run on tensors without data: the profile of some of its steps, and what it communicated."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from gnnperf.core import InputError
from gnnperf.generate.capturing.communication import Communication
from gnnperf.generate.capturing.nesting import Event, program_events
from gnnperf.generate.capturing.refusal import refused
from gnnperf.generate.capturing.without_data import without_data
from gnnperf.generate.capturing.works import Issued
from gnnperf.record import PROFILER_WARMUP_STEPS, step_profiler

Step = Callable[[], object]
Build = Callable[[], Step]
FIRST_STEPS = 2  # DDP orders its buckets in the first one, optimizers make their state


@dataclass(frozen=True)
class RankRun:
    """What one rank did.

    Attributes:
        rank: which.
        groups: ranks of its process groups, in order of creation.
        events: of the program in the profiled steps, as Kineto writes them, in order of start; and marks.
        arrows: between forward and backward ops.
        issued: its collectives, of all steps, by number.
    """

    rank: int
    groups: tuple[tuple[int, ...], ...]
    events: tuple[Event, ...]
    arrows: tuple[Event, ...]
    issued: Sequence[Issued]


def run_rank(build: Build, rank: int, world_size: int, steps: int) -> RankRun:
    """Build the program as this rank and run it.

    Raises:
        InputError: what the program does next depends on numbers that nobody computed.
    """
    communication = Communication()
    with _alone_in_a_group(rank, world_size), without_data():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), communication:
                events = _profiled(build(), steps)
        except RuntimeError as error:  # what FakeTensorMode raises are such, too
            message = refused(error, rank)
            if message is None:
                raise
            raise message from error
        groups = tuple(tuple(ranks) for ranks in dist.distributed_c10d._world.pg_group_ranks.values())
    return RankRun(rank, groups, program_events(events), _arrows(events), communication.issued)


def _arrows(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(e for e in events if e.get("cat") == "fwdbwd")


def _profiled(step: Step, steps: int) -> list[Event]:
    for _ in range(FIRST_STEPS):
        step()
    profiler = step_profiler(steps)
    with profiler:
        for _ in range(PROFILER_WARMUP_STEPS + steps):
            step()
            profiler.step()
    with tempfile.TemporaryDirectory(prefix="gnnperf-capture-") as folder:
        path = Path(folder) / "rank.json"
        profiler.export_chrome_trace(str(path))
        found: list[Event] = json.loads(path.read_bytes())["traceEvents"]
        return found


@contextmanager
def _alone_in_a_group(rank: int, world_size: int) -> Iterator[None]:
    """A process group in which this rank is alone and all others seem to be there."""
    if dist.is_initialized():
        raise InputError("a process group is up already", where="capture", remedy="capture in a process of its own")
    hook = sys.excepthook  # the process group puts its own in, which says a rank before every line
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook
