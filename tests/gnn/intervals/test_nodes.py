"""Intervals of nodes: which group answers, and what it says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gnnperf.gnn.intervals.nodes import MIN_NODES, MIN_RUNS, NodeIntervals, answer_table, fit_node_intervals

LOW, HIGH = np.log(0.5), np.log(4.0)


def _answers(kind: str, predicted_us: float, scores: np.ndarray, num_runs: int = MIN_RUNS) -> pd.DataFrame:
    count = len(scores)
    table = answer_table("cpu", np.full(count, "gnn"), np.full(count, kind), np.full(count, None),
                         np.full(count, predicted_us))  # fmt: skip
    return table.assign(run=[f"run{i % num_runs}" for i in range(count)], measured_us=predicted_us * np.exp(scores))


def _ask(intervals: NodeIntervals, kind: str, predicted_us: float, device: str = "cpu") -> tuple[float, float]:
    requested = answer_table(device, np.array(["gnn"]), np.array([kind]), np.array([None]), np.array([predicted_us]))
    low, high = intervals.bounds_us(requested)
    return float(low[0]), float(high[0])


def test_a_group_states_what_its_nodes_missed() -> None:
    scores = np.concatenate([[LOW] * 10, np.zeros(MIN_NODES), [HIGH] * 10])
    result = fit_node_intervals(_answers("host T1", 10.0, scores), 0.9)
    assert _ask(result, "host T1", 10.0) == pytest.approx((5.0, 40.0))
    assert result.devices == ("cpu",)


def test_short_nodes_have_intervals_of_their_own_and_others_take_the_next_group() -> None:
    short, long = _answers("host T1", 1.0, np.full(MIN_NODES, LOW)), _answers("host T1", 900.0, np.zeros(MIN_NODES))
    few = _answers("compute", 5.0, np.full(MIN_NODES - 1, HIGH))
    result = fit_node_intervals(pd.concat([short, long, few]), 0.9)
    assert _ask(result, "host T1", 1.0) == pytest.approx((0.5, 0.5))
    assert _ask(result, "host T1", 900.0) == pytest.approx((900.0, 900.0))
    assert _ask(result, "host T1", 40.0) == pytest.approx((20.0, 40.0))  # no size of its own: all of its kind
    assert _ask(result, "compute", 5.0) == pytest.approx((2.5, 20.0))  # too few: all that the network answered


def test_many_nodes_of_too_few_runs_are_no_group() -> None:
    result = fit_node_intervals(_answers("host T1", 10.0, np.zeros(1000), num_runs=MIN_RUNS - 1), 0.9)
    assert result.log_bounds == {}
    assert np.isnan(_ask(result, "host T1", 10.0)).all()


def test_of_another_device_nothing_is_known() -> None:
    result = fit_node_intervals(_answers("host T1", 10.0, np.zeros(MIN_NODES)), 0.9)
    assert np.isnan(_ask(result, "host T1", 10.0, device="h100_sxm")).all()


def test_nodes_without_answer_or_measurement_tell_nothing() -> None:
    known = _answers("host T1", 10.0, np.zeros(MIN_NODES))
    unknown = [known.assign(measured_us=np.nan), known.assign(predicted_us=np.nan), known.assign(predicted_us=0.0)]
    result = fit_node_intervals(pd.concat([known, *unknown]), 0.9)
    assert result == fit_node_intervals(known, 0.9)
    assert np.isnan(_ask(result, "host T1", np.nan)).all()
