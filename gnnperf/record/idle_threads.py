"""Before a profiler or observer is taken away: wait for the other threads of this process.

A collective is complete for the thread that waits for it shortly before the thread that did it leaves the profiler's
callbacks. If the profiler is taken away in between, the callback writes into freed memory, and the program dies, once
in some hundred recordings (pytorch/pytorch, pull request 180086, of April 2026).

    main thread     wait ------>|done| optimizer | stop the profiler: its memory is freed
    gloo's thread   reduce |complete| ...preempted... |leave the callback|  <- into what was freed
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import torch.profiler

TASKS = Path("/proc/self/task")
PATIENCE_S = 0.5  # a thread that never rests (a data loader's, a busy poll) does not hold up a recording
LOOK_EVERY_S = 0.001
LOOKS = 2  # in a row: between two waits a thread may be seen asleep


def await_idle_threads(patience_s: float = PATIENCE_S) -> bool:
    """Wait until no other thread of this process runs or wants to; at most `patience_s`.

    Returns:
        Whether that came about. Where the system does not tell (no /proc), it waits a little and says no.
    """
    if not TASKS.is_dir():
        time.sleep(LOOKS * LOOK_EVERY_S)
        return False
    deadline, idle = time.monotonic() + patience_s, 0
    while idle < LOOKS and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        idle = 0 if _busy_threads() else idle + 1
    return idle >= LOOKS


class SafeProfile(torch.profiler.profile):
    """torch's profiler, which ends its collection while no other thread is inside it."""

    def stop_trace(self) -> None:
        """Collect no more; called after the last step's annotation has ended."""
        await_idle_threads()
        super().stop_trace()


def _busy_threads() -> list[int]:
    own = threading.get_native_id()
    return [thread for thread in map(int, _names()) if thread != own and _state(thread) in ("R", "D")]


def _names() -> list[str]:
    return [folder.name for folder in TASKS.iterdir()]


def _state(thread: int) -> str:
    """One letter, after the name in brackets, which may hold anything: proc(5). A thread that has ended: "X"."""
    try:
        text = (TASKS / str(thread) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "X"
    return text.rpartition(")")[2].split()[0]
