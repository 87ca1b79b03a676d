"""A rank's process: it keeps its memory, and it ends with the process that launched it.

Memory: glibc gives freed memory back and gets it again, page by page, in every step. A page that is touched for the
first time costs 0.3 us, and on a virtual machine whose host has to provide it, 10 us and more. A step that allocates
its activations anew (a small residual network: 3,000 pages) then varies by tens of milliseconds with what memory the
kernel happens to have at hand. And the profiler's own small, lasting allocations break up the blocks that steps would
use again, so that profiled steps meet fresh pages all the time.

End: however the launcher ends, its ranks end.

    launcher   | holds the pipe's write end ...... killed
    rank       | its read end, signal-driven ......| SIGIO ends it, whatever it is doing

A rank's parent is the server that forked it, so the kernel's signal for the death of a parent would tell it nothing.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from multiprocessing.connection import Connection

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
    pool_bytes = min(POOL_BYTES, int(SHARE_OF_FREE_MEMORY * _free_bytes()))
    _touch(libc, pool_bytes)
    return {"allocator": "glibc, memory kept", "pool_bytes": pool_bytes}


def end_with(launcher: Connection) -> None:
    """End this process when nobody holds the other end of the pipe any more; at once if so already.

    The pipe is opened anew: the kernel signals one owner per opening, and ranks share the one they were given.

    Args:
        launcher: the read end. Nothing is ever sent through it.
    """
    own = os.open(f"/proc/self/fd/{launcher.fileno()}", os.O_RDONLY | os.O_NONBLOCK)  # open as long as this process
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    if launcher.poll():  # its end
        os.kill(os.getpid(), signal.SIGIO)


def _touch(libc: ctypes.CDLL, num_bytes: int) -> None:
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
    block = libc.malloc(num_bytes)
    if block:
        ctypes.memset(block, 1, num_bytes)
        libc.free(block)


def _free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
