"""Start the ranks of one run on this machine: a core each and gloo over a link, or a GPU each and NCCL."""

import ctypes
import fcntl
import os
import signal
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist

from gnnperf.core import InputError

# A rank's process: it keeps its memory, and it ends with the process that launched it.
#
# Memory: glibc gives freed memory back and gets it again, page by page, in every step. A page that is touched for the
# first time costs 0.3 us, and on a virtual machine whose host has to provide it, 10 us and more. A step that allocates
# its activations anew (a small residual network: 3,000 pages) then varies by tens of milliseconds with what memory the
# kernel happens to have at hand. And the profiler's own small, lasting allocations break up the blocks that steps would
# use again, so that profiled steps meet fresh pages all the time.
#
# End: however the launcher ends, its ranks end.
#
#     launcher   | holds the pipe's write end ...... killed
#     rank       | its read end, signal-driven ......| SIGIO ends it, whatever it is doing
#
# A rank's parent is the server that forked it, so the kernel's signal for the death of a parent would tell it nothing.

TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8  # of glibc's malloc.h
POOL_BYTES = 512 * 2**20
SHARE_OF_FREE_MEMORY = 0.1  # at most so much of it per rank


def keep_memory() -> dict[str, object]:
    """Never give memory back, and have a pool of touched pages; call it before the process starts threads.

    Only for processes whose program is ours: it changes how the whole process allocates.

    Returns:
        For a card's `conditions`: what was done; the allocator is "default" where it is not glibc's.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return {"allocator": "default"}
    if not all(libc.mallopt(option, value) for option, value in ((TRIM_THRESHOLD, -1), (MMAP_MAX, 0), (ARENA_MAX, 1))):
        return {"allocator": "default"}
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    pool_bytes = min(POOL_BYTES, int(SHARE_OF_FREE_MEMORY * free_bytes))
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
    block = libc.malloc(pool_bytes)
    if block:  # touched, and retained by the allocator
        ctypes.memset(block, 1, pool_bytes)
        libc.free(block)
    return {"allocator": "glibc, memory kept", "pool_bytes": pool_bytes}


def end_with(launcher: Connection) -> None:
    """End this process when no one holds the other end of the pipe any more; at once if so already.

    The pipe is opened anew: the kernel signals one owner per opening, and ranks share the one they were given.
    """
    own = os.open(f"/proc/self/fd/{launcher.fileno()}", os.O_RDONLY | os.O_NONBLOCK)  # open as long as this process
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    if launcher.poll():  # its end
        os.kill(os.getpid(), signal.SIGIO)


COLLECTIVE_TIMEOUT = timedelta(seconds=15)  # gloo hangs now and then
# Ranks are forked from a process that has loaded torch once. Kineto reads its setting when torch is loaded: below this
# level it announces every start and stop.
SERVER_ENVIRONMENT = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
PRELOADED = ["torch", "torch.distributed", "gnnperf.record.recorder"]
_allocator: dict[str, object] = {}  # of this process; empty in one that is no rank
SLICE_NS = 100_000
KILLED_WITHIN_S = 10.0  # the server that forked a rank shows of its end; it may be gone itself
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # system call numbers


class RankFailed(RuntimeError):
    """A rank ended early or did not end in time; all ranks are gone."""


def launch(
    main: Callable[..., None], arguments: Sequence[object], *, world_size: int, timeout_s: float,
    enter: Sequence[Callable[[], None]] = (),
) -> None:  # fmt: skip
    """Run `main(*arguments)` on every rank, in processes of their own, inside a process group.

    Ranks find each other through a file in a private directory and talk over 127.0.0.1, so that no port is open to
    others, or where `enter` moves each rank before it starts threads. They end with this process, however it ends.

    Raises InputError: there are GPUs, but fewer than ranks.
    """
    gpus = torch.cuda.device_count()
    if 0 < gpus < world_size:
        raise InputError(f"{world_size} ranks on {gpus} GPU(s)", where="ranks", allowed=f"1 to {gpus}: a GPU each",
                         remedy='set CUDA_VISIBLE_DEVICES="" to record on the CPU')  # fmt: skip
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    lifeline, held = context.Pipe(duplex=False)
    with (
        lifeline,
        held,
        tempfile.TemporaryDirectory(prefix="gnnperf-ranks-") as meeting,
        patch.dict(os.environ, SERVER_ENVIRONMENT),  # the server of new processes inherits it from the first of them
    ):
        entries = enter or [_stay_on_loopback] * world_size
        ranks = [
            context.Process(target=_run_rank, args=(main, arguments, rank, entries, meeting, lifeline), daemon=True)
            for rank in range(world_size)
        ]
        try:
            for process in ranks:
                process.start()
            _await(ranks, time.monotonic() + timeout_s)
        finally:  # SIGKILL, because a rank inside a collective does not react to anything else
            for process in ranks:
                if process.is_alive():
                    process.kill()
            for process in ranks:
                if process.pid is not None:
                    process.join(KILLED_WITHIN_S)
                    if not process.is_alive():
                        process.close()


def _await(ranks: Sequence[ForkServerProcess], deadline: float) -> None:
    running = dict(enumerate(ranks))
    while running:
        ended = connection.wait([p.sentinel for p in running.values()], max(0.0, deadline - time.monotonic()))
        if not ended:
            raise RankFailed(f"rank {', '.join(map(str, running))} did not end in time")
        for rank, process in list(running.items()):
            if process.sentinel in ended:
                process.join()
                del running[rank]
                code = process.exitcode
                if code is not None and code < 0:
                    raise RankFailed(f"rank {rank} was killed by {signal.Signals(-code).name}")
                if code != 0:
                    raise RankFailed(f"rank {rank} ended with exit code {code}")


def _stay_on_loopback() -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def _run_rank(
    main: Callable[..., None], arguments: Sequence[object], rank: int, entries: Sequence[Callable[[], None]],
    meeting: str, lifeline: Connection,
) -> None:  # fmt: skip
    end_with(lifeline)
    _allocator.update(keep_memory())  # before torch starts threads
    entries[rank]()
    if torch.cuda.is_available():  # a GPU per rank; the host's threads go where they like
        torch.cuda.set_device(rank % torch.cuda.device_count())
        backend = "nccl"
    else:
        # The CPU is the device: a core and a thread per rank; gloo's threads, which start later, inherit the core.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
        torch.set_num_threads(1)
        backend = "gloo"
    world_size = len(entries)
    store = dist.FileStore(str(Path(meeting) / "store"), world_size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=COLLECTIVE_TIMEOUT)
    try:
        main(*arguments)
        dist.barrier()  # a rank that leaves first would break its peers' last collective
    finally:
        dist.destroy_process_group()


def put_transport_first(schedule: Callable[[int], None]) -> None:
    """Let gloo's threads run when they have something to do; again after new groups, which have threads of their own.

    They share their rank's core with its main thread. A thread that wakes does not take the core from an ordinary one
    before the kernel's next tick, which comes every 4 ms: steps then last whole multiples of 4 ms longer. A network
    card would not wait. `schedule` is given the number of each thread. Where it is not permitted, the main thread is
    instructed not to push others off the core when it wakes.
    """
    if dist.get_backend() != "gloo":
        return
    for thread in Path("/proc/self/task").iterdir():
        if int(thread.name) != os.getpid():
            try:
                schedule(int(thread.name))
            except PermissionError:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
                return
            except ProcessLookupError:  # it ended meanwhile
                continue


def short_slice(thread: int) -> None:
    """sched_setattr(2): an ordinary thread that asks for `SLICE_NS` at a time goes first when it wakes (Linux 6.12)."""
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, 0, 0, 0, SLICE_NS, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SCHED_SETATTR[os.uname().machine], thread, attributes, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def conditions() -> dict[str, object]:
    """For the card of a rank: how it allocates."""
    return dict(_allocator)
