"""Measured slices of calls that wait."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.summary import measured_slices
from tests.predict.answers import toy_answer

T1_OF_RANK_0 = 6  # starts at 180 us, for 5


def _waiting(blocked_us: float, latency_us: float) -> StepPrediction:
    answer = toy_answer()
    nodes = answer.prediction.graph.nodes
    nodes.loc[T1_OF_RANK_0, ["blocked_us", "latency_us"]] = (blocked_us, latency_us)
    return answer


def test_a_wait_comes_before_the_own_time_of_a_call() -> None:
    slices = measured_slices(_waiting(30.0, 5.0)).set_index("node_id")
    assert slices.loc[T1_OF_RANK_0, "start_us"] == pytest.approx(150.0)
    assert slices.loc[T1_OF_RANK_0, "end_us"] == pytest.approx(185.0)


def test_a_wait_for_untraced_peers_is_all_there_is() -> None:
    slices = measured_slices(_waiting(30.0, np.nan)).set_index("node_id")
    assert slices.loc[T1_OF_RANK_0, "start_us"] == pytest.approx(180.0)
    assert slices.loc[T1_OF_RANK_0, "end_us"] == pytest.approx(210.0)
