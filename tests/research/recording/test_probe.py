from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
import torch

from research.recording.probe import NoiseProbe, drift, fastest, probe_us


def test_drift_is_the_largest_change_of_any_core() -> None:
    assert drift([100.0, 200.0], [101.0, 190.0]) == pytest.approx(0.05)
    assert drift([100.0], [108.0]) == pytest.approx(0.08)


def test_the_probe_times_every_core_and_leaves_the_process_as_it_was() -> None:
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    times_us = probe_us(sorted(cores))
    assert len(times_us) == len(cores) and min(times_us) > 1.0  # 33 MFLOP: no core does that in a microsecond
    assert os.sched_getaffinity(0) == cores and torch.get_num_threads() == threads


def probe(*result: Sequence[float]) -> list[Sequence[float]]:
    """What the probe finds, one after another, the last first."""
    return list(reversed(result))


def test_it_waits_until_the_machine_is_as_fast_as_at_its_best() -> None:
    noise = NoiseProbe(max_drift=0.03, patience_s=60.0)
    assert noise.wait(probe([100.0, 100.0]).pop) == [100.0, 100.0]  # nothing better is known
    result = probe([104.0, 100.0], [100.0, 120.0], [102.0, 102.5], [0.0, 0.0])
    assert noise.wait(result.pop) == [102.0, 102.5]
    assert result == [[0.0, 0.0]]


def test_what_earlier_recordings_detected_counts() -> None:
    noise = NoiseProbe(0.03, fastest([[100.0], [99.0, 101.0], [98.0, 103.0]]), patience_s=60.0)
    assert noise.wait(probe([110.0, 101.0], [99.0, 101.0]).pop) == [99.0, 101.0]
