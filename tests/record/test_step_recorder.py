"""StepRecorder, called where a stranger's program calls it."""

from __future__ import annotations

import subprocess
import sys

STEP_ENDS_INSIDE_AN_ANNOTATION = """
import os
import torch
from torch.profiler import record_function
from gnnperf.record.step_recorder import StepRecorder, Stretches

weight = torch.ones(4)
for _ in range(12):
    recorder = StepRecorder(Stretches(warmup=0, unprofiled=0, profiled=1), execution_trace=False)
    while not recorder.done:
        with record_function("step"):
            weight = weight * 1
            weight = weight * 1
            weight = weight * 1
            recorder()
    recorder.close()
print("alive", flush=True)  # _exit flushes nothing
os._exit(0)
"""


def test_a_step_may_end_inside_an_annotation() -> None:
    """As the steps of a wrapped program do: it ends in SIGSEGV or SIGABRT when profiles follow without a gap."""
    words = [sys.executable, "-c", STEP_ENDS_INSIDE_AN_ANNOTATION]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "alive" in done.stdout
