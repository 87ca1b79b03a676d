"""Start the ranks of one run on this machine: gloo on loopback, one core per rank, one thread for its arithmetic."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

LINK = {"backend": "gloo", "medium": "loopback"}
COLLECTIVE_TIMEOUT = timedelta(seconds=60)
# Read by gloo (which interface to talk over) and by Kineto (below this level it announces every start and stop).
RANK_ENVIRONMENT = {"GLOO_SOCKET_IFNAME": "lo", "KINETO_LOG_LEVEL": "99"}


class RankFailed(RuntimeError):
    """A rank ended early or did not end in time; all ranks are gone."""


def launch(main: Callable[..., None], arguments: Sequence[object], *, world_size: int, timeout_s: float) -> None:
    """Run `main(*arguments)` on every rank, in processes of their own, inside a gloo process group.

    Ranks find each other through a file in a private directory and talk over 127.0.0.1 only: no port is open to others.

    Args:
        main: a function of a module (it is found by name in the new processes).
        arguments: the same for every rank.
        world_size: number of ranks; rank i is pinned to the i-th core that this process may use.
        timeout_s: from start to end.

    Raises:
        RankFailed: a rank failed or was killed, or the time was up. No process is left.
    """
    context = torch.multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="gnnperf-ranks-") as meeting:
        ranks = [
            context.Process(target=_run_rank, args=(main, arguments, rank, world_size, meeting), daemon=True)
            for rank in range(world_size)
        ]
        try:
            with _environment(RANK_ENVIRONMENT):
                for process in ranks:
                    process.start()
            _await(ranks, time.monotonic() + timeout_s)
        finally:
            _kill(ranks)


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """What new processes inherit; Kineto reads its setting when torch is loaded, before any code of ours runs there."""
    before = {key: os.environ.get(key) for key in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def _await(ranks: Sequence[SpawnProcess], deadline: float) -> None:
    running = dict(enumerate(ranks))
    while running:
        ended = connection.wait([p.sentinel for p in running.values()], max(0.0, deadline - time.monotonic()))
        if not ended:
            raise RankFailed(f"rank {', '.join(map(str, running))} did not end in time")
        for rank, process in list(running.items()):
            if process.sentinel in ended:
                process.join()
                del running[rank]
                if process.exitcode != 0:
                    raise RankFailed(f"rank {rank} {_how_it_ended(process.exitcode)}")


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"


def _kill(ranks: Sequence[SpawnProcess]) -> None:
    """End what still runs. SIGKILL, because a rank inside a collective does not answer anything else."""
    for process in ranks:
        if process.is_alive():
            process.kill()
    for process in ranks:
        if process.pid is not None:
            process.join()
            process.close()


def _run_rank(main: Callable[..., None], arguments: Sequence[object], rank: int, world_size: int, meeting: str) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})  # before any thread starts: gloo's threads inherit it
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(meeting) / "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=COLLECTIVE_TIMEOUT)
    _yield_to_gloo()
    try:
        main(*arguments)
        dist.barrier()  # a rank that leaves first would break its peers' last collective
    finally:
        dist.destroy_process_group()


def _yield_to_gloo() -> None:
    """Do not let this thread, when woken, push a thread of gloo off the core they share.

    A collective's worker wakes this thread first and stamps its own end after that. If it is preempted in between, the
    stamp is milliseconds late (a quarter of DDP's all-reduces were; under this policy none by more than 0.2 ms).
    Gloo's threads have started by now and keep the policy they have.
    """
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
