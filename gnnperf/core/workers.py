"""A function for many items, or one during other work, in copies of the process that end with it."""

import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, BinaryIO, TypeVar

from gnnperf.core.progress import each

Result = TypeVar("Result")
Mapped = Callable[[Callable[[Any], Any], Sequence[Any], str], list[Any]]  # (function, items, what) -> results in order
MOST = 8  # processes
MANY_ROWS = 300_000  # of a table: work on fewer takes no longer than to copy the process
ALIGNED_BYTES = 64  # where arrays begin


def usable_cores() -> int:
    """Cores that this process may use, at most MOST."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MOST)


def copyable_cores() -> int:
    """The same for copies of this process, itself included; Linux copies processes safely, and a copy makes none."""
    return usable_cores() if sys.platform == "linux" and multiprocessing.parent_process() is None else 1


def in_turn(function: Callable[[Any], Any], items: Sequence[Any], what: str, unit: str = "runs") -> list[Any]:
    """The results, computed in this process."""
    return [function(item) for item in each(items, what, unit)]


@contextmanager
def in_copy(function: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """What waits for the result of `function`, which a copy of this process computes during the block.

    The copy shares the memory of this process; only the result is sent, which holds no tensors. Its arrays lie in a
    file in memory that both processes map. Libraries must use one thread in both: OpenMP hangs in a copy. If the system
    makes no copy or ends it for its memory, or if the function fails there, it is computed here when the result is
    requested, so that errors are raised here.
    """
    context = multiprocessing.get_context("fork")
    with ExitStack() as opened:
        try:
            receiver, sender = map(opened.enter_context, context.Pipe(duplex=False))
            arrays = opened.enter_context(open(os.memfd_create("arrays"), "w+b"))
            copy = context.Process(target=_send_result, args=(function, sender, arrays), daemon=True)
            copy.start()
        except OSError:  # no more processes or files, or no memory for one
            yield function
            return
        sender.close()

        def result() -> Result:
            try:
                text, spans = receiver.recv()
                received: Result = _received(text, spans, arrays)
            except (EOFError, OSError):  # before, or while it was sent
                received = function()
            return received

        try:
            yield result
        finally:
            copy.kill()
            copy.join()


def in_copies(
    function: Callable[[Any], Result], items: Sequence[Any], what: str, most: int = MOST, unit: str = "runs"
) -> list[Result]:
    """`in_turn`, but divided among at most `most` copies of this process, itself included (`in_copy`)."""
    count = max(min(copyable_cores(), len(items), most), 1)
    with ExitStack() as copies:
        parts = [partial(list[Result], map(function, items[first::count])) for first in range(1, count)]
        others = [copies.enter_context(in_copy(part)) for part in parts]
        shares = [in_turn(function, items[::count], what, unit), *(result() for result in others)]
    return [shares[place % count][place // count] for place in range(len(items))]


def _send_result(function: Callable[[], Any], sender: Connection, arrays: BinaryIO) -> None:
    """In a copy, which shows no bars of progress: send the result, or nothing if there is none."""
    end_with_parent()
    with suppress(Exception):  # raised again where the result is requested
        buffers = list[pickle.PickleBuffer]()
        text = pickle.dumps(Context().run(function), 5, buffer_callback=buffers.append)
        spans = list[tuple[int, int]]()
        for buffer in buffers:
            with buffer.raw() as content:
                begin = -(-arrays.tell() // ALIGNED_BYTES) * ALIGNED_BYTES
                arrays.seek(begin)
                arrays.write(content)
                spans.append((begin, begin + content.nbytes))
        arrays.flush()
        arrays.truncate(spans[-1][1] if spans else 0)  # a last array without bytes begins behind what was written
        sender.send((text, spans))


def _received(text: bytes, spans: Sequence[tuple[int, int]], arrays: BinaryIO) -> Any:
    """What a copy sent; its arrays, which end at the last of `spans`, can be written to."""
    size = max((end for _, end in spans), default=0)
    mapped = memoryview(mmap.mmap(arrays.fileno(), size, access=mmap.ACCESS_COPY) if size else b"")
    return pickle.loads(text, buffers=[mapped[begin:end] for begin, end in spans])


def end_with_parent() -> None:
    """In a worker: a killed parent leaves it not behind; an interrupted one waits for nothing."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "runs in a worker"
    parent.join()
    os._exit(1)
