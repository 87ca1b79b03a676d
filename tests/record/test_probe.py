from __future__ import annotations

import os

import pytest
import torch

from gnnperf.record.probe import drift, probe_us


def test_drift_is_the_largest_change_of_any_core() -> None:
    assert drift([100.0, 200.0], [101.0, 190.0]) == pytest.approx(0.05)
    assert drift([100.0], [108.0]) == pytest.approx(0.08)


def test_the_probe_times_every_core_and_leaves_the_process_as_it_was() -> None:
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    times_us = probe_us(sorted(cores))
    assert len(times_us) == len(cores) and min(times_us) > 1.0  # 33 MFLOP: no core does that in a microsecond
    assert os.sched_getaffinity(0) == cores and torch.get_num_threads() == threads
