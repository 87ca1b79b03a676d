"""Threads that rest, run, or never rest; and torch's observer, which dies without the wait."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from torch.profiler import ProfilerActivity

from gnnperf.record import step_clock
from gnnperf.record.step_clock import SafeProfile, await_idle_threads

# Both end in SIGSEGV or SIGABRT without the wait before a profile or an observer stops.
DIES_WITHOUT_THE_WAIT = """
import os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch.profiler import record_function
from gnnperf.record.step_recorder import ExecutionTraceStep, StepRecorder, Stretches

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
tensor = torch.ones(64)
for _ in range(150):
    watcher = ExecutionTraceStep(Path(sys.argv[1]))
    watcher.begin()
    for future in [dist.all_reduce(tensor, async_op=True).get_future() for _ in range(4)]:
        future.wait()
    watcher.end()
print("collectives that just ended", flush=True)  # _exit flushes nothing
weight = torch.ones(4)
for _ in range(12):  # steps end inside an annotation, as those of a wrapped program do
    recorder = StepRecorder(Stretches(warmup=0, unprofiled=0, profiled=1), execution_trace=False)
    while not recorder.done:
        with record_function("step"):
            weight = weight * 1
            weight = weight * 1
            weight = weight * 1
            recorder()
    recorder.close()
print("profiles without a gap", flush=True)
os._exit(0)
"""


def test_threads_that_wait_are_idle() -> None:
    release = threading.Event()
    waiting = threading.Thread(target=release.wait)
    waiting.start()
    try:
        assert await_idle_threads(patience_s=5.0)
    finally:
        release.set()
        waiting.join()


def test_waits_for_a_thread_that_runs() -> None:
    ended_ns = []

    def run() -> None:
        end_ns = time.monotonic_ns() + 50_000_000
        while time.monotonic_ns() < end_ns:
            pass
        ended_ns.append(time.monotonic_ns())

    running = threading.Thread(target=run)
    running.start()
    assert await_idle_threads(patience_s=10.0)
    assert ended_ns  # it had ended when the wait did
    running.join()


def test_a_thread_that_never_rests_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_clock, "_busy_threads", lambda: [7])
    assert not await_idle_threads(patience_s=0.02)


def test_a_system_without_proc_states_no(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(step_clock, "TASKS", tmp_path_factory.mktemp("none") / "task")
    assert not await_idle_threads()


def test_a_profile_waits_before_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    monkeypatch.setattr(step_clock, "await_idle_threads", lambda: waits.append("wait"))
    with SafeProfile(activities=[ProfilerActivity.CPU]):
        assert waits == []
    assert waits == ["wait"]


def test_collectives_that_just_ended_and_profiles_without_a_gap_kill_no_program(tmp_path: Path) -> None:
    """Without the wait the first dies within some ten rounds on a busy machine."""
    words = [sys.executable, "-c", DIES_WITHOUT_THE_WAIT, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.splitlines() == ["collectives that just ended", "profiles without a gap"]
