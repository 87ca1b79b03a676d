"""Intervals of steps: shared errors add up within a group, in squares between groups."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from gnnperf.gnn.intervals.steps import PRIOR_RUNS, StepIntervals, StepMiss, fit_step_intervals, miss_of, shares_of

NODES = pd.DataFrame({
    "group": ["host", "host", "compute", "compute"],
    "critical_us": [10.0, 10.0, 60.0, 0.0],
    "predicted_us": [10.0, 10.0, 60.0, 99.0],
    "measured_us": [10.0, 30.0, 30.0, 1.0],
})  # fmt: skip


def test_what_a_step_missed_by_hand() -> None:
    """80 us predicted; the node off the path tells nothing."""
    miss = miss_of("a", (80.0, 70.0), NODES)
    assert miss.log_error == pytest.approx(math.log(70 / 80))
    assert miss.share == pytest.approx({"host": 0.25, "compute": 0.75})
    assert miss.group_error == pytest.approx({"host": math.log(2.0), "compute": -math.log(2.0)})
    assert shares_of(NODES, 80.0) == pytest.approx(miss.share)


def test_an_unmeasured_group_has_a_share_and_no_error() -> None:
    miss = miss_of("a", (80.0, 70.0), NODES.assign(measured_us=[1.0, 1.0, math.nan, math.nan]))
    assert set(miss.share) == {"host", "compute"}
    assert set(miss.group_error) == {"host"}


def test_groups_err_independently_by_hand() -> None:
    intervals = StepIntervals(0.9, {"host": 0.3, "compute": 0.4}, 0.2, 2.0, ("cpu",))
    low, high = intervals.bounds_us(100.0, {"host": 0.5, "compute": 0.5})
    assert (low, high) == pytest.approx((100.0 / math.exp(0.5), 100.0 * math.exp(0.5)))  # 2 x hypot(0.15, 0.2)
    assert intervals.bounds_us(100.0, {"never seen": 1.0})[1] == pytest.approx(100.0 * math.exp(0.4))


def test_a_group_that_errs_more_makes_wider_intervals() -> None:
    misses = [StepMiss(f"run{i}", 0.1 * i, {"host": 1.0}, {"host": 0.01, "collective": 1.0}) for i in range(1, 10)]
    result = fit_step_intervals(misses, 0.9, ["cpu"] * 9)
    assert result.level == pytest.approx(0.9)
    assert result.group_error["collective"] > 2 * result.group_error["host"]
    quiet, loud = (result.bounds_us(1.0, {group: 1.0})[1] for group in ("host", "collective"))
    assert quiet == pytest.approx(math.exp(0.9))  # nine runs: 90 % is their largest
    assert loud > quiet
    assert result.devices == ("cpu",)


def test_few_runs_promise_less() -> None:
    misses = [StepMiss(run, 0.1, {"host": 1.0}, {"host": 0.1}) for run in ("a", "a", "b", "c", "d")]
    result = fit_step_intervals(misses, 0.9, ["cpu"])
    assert result.level == pytest.approx(4 / 5)
    assert result.bounds_us(1.0, {"host": 1.0})[1] == pytest.approx(math.exp(0.1))


def test_a_group_with_few_runs_is_held_to_all() -> None:
    misses = [StepMiss("a", 0.1, {"host": 1.0}, {"host": 0.0, "compute": 2.0})]
    result = fit_step_intervals(misses, 0.9, ["cpu"])
    assert result.other_error == pytest.approx(math.sqrt(2.0))
    assert result.group_error["host"] == pytest.approx(math.sqrt(PRIOR_RUNS * 2.0 / (1 + PRIOR_RUNS)))
