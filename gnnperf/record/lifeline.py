"""Ranks end with the process that launched them, however that ends.

launcher   | holds the pipe's write end ...... killed
rank       | its read end, signal-driven ......| SIGIO ends it, whatever it is doing

A rank's parent is the server that forked it, so the kernel's signal for the death of a parent would tell it nothing.
"""

from __future__ import annotations

import fcntl
import os
import signal
from multiprocessing.connection import Connection


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
