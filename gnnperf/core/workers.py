"""A function for many items, or one during other work, in processes that end with the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from gnnperf.core.errors import InputError
from gnnperf.core.progress import each, task

Result = TypeVar("Result")
Mapped = Callable[[Callable[[Any], Any], Sequence[Any], str], list[Any]]  # (function, items, what) -> results in order
CHUNKS = 16  # of items, per process: a function is sent with each
FEW, MOST = 16, 8  # items that take less time than processes to start; processes, which load torch each
THREADS = "OMP_NUM_THREADS"


def usable_cores() -> int:
    """Cores that this process may use, at most MOST."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MOST)


def in_turn(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> list[Any]:
    """The results, computed in this process."""
    return [function(item) for item in each(items, what, "runs")]


@contextmanager
def worker_processes(count: int, module: str) -> Iterator[Mapped]:
    """`in_turn`, but by `count` processes that import `module`, with one thread each; none for fewer items than FEW.

    Functions and items must be of modules that can be imported. An error of the function is raised here; a process that
    the system ends (for its memory) is an InputError.
    """
    if count < 2:
        yield in_turn
        return
    before = os.environ.get(THREADS)
    os.environ[THREADS] = before or "1"  # of libraries that workers load
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    pool = ProcessPoolExecutor(count, context, end_with_parent)

    def mapped(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> list[Any]:
        if len(items) < FEW:
            return in_turn(function, items, what)
        results = []
        with task(what, len(items), "runs") as advance:
            for result in pool.map(function, items, chunksize=-(-len(items) // (CHUNKS * count)) or 1):
                results.append(result)
                advance(1.0)
        return results

    try:
        yield mapped
    except BrokenProcessPool as error:
        raise InputError("a worker process was ended by the system, most often for its memory", where=module,
                         remedy="free memory, or allow this process one core (taskset -c 0)") from error  # fmt: skip
    finally:
        if before is None:
            del os.environ[THREADS]
        pool.shutdown(cancel_futures=True)  # what is stopped by hand does not go on with waiting items


@contextmanager
def in_copy(function: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """What waits for the result of `function`, which a copy of this process computes during the block.

    The copy shares the memory of this process; only the result is sent. Libraries must use one thread in both: OpenMP
    hangs in a copy. If the function fails there, or the system ends the copy for its memory, it is computed here when
    the result is requested, so that errors are raised here.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    copy = context.Process(target=_send_result, args=(function, sender), daemon=True)
    copy.start()
    sender.close()

    def result() -> Result:
        try:
            received: Result = receiver.recv()
        except (EOFError, OSError):  # before, or while it was sent
            received = function()
        return received

    try:
        yield result
    finally:
        copy.kill()
        copy.join()
        receiver.close()


def in_copies(function: Callable[[Any], Result], items: Sequence[Any], what: str) -> list[Result]:
    """`in_turn`, but divided among copies of this process, one per usable core (`in_copy`)."""
    count = min(usable_cores(), len(items)) or 1
    with ExitStack() as copies:
        parts = [partial(list[Result], map(function, items[first::count])) for first in range(1, count)]
        others = [copies.enter_context(in_copy(part)) for part in parts]
        shares = [in_turn(function, items[::count], what), *(result() for result in others)]
    return [shares[place % count][place // count] for place in range(len(items))]


def _send_result(function: Callable[[], Any], sender: Connection) -> None:
    """In a copy, which shows no bars of progress: send the result, or nothing if there is none."""
    end_with_parent()
    with suppress(Exception):  # raised again where the result is requested
        sender.send(Context().run(function))


def end_with_parent() -> None:
    """In a worker: a killed parent leaves it not behind; an interrupted one waits for nothing."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "runs in a worker"
    parent.join()
    os._exit(1)
