"""Intervals given with answers: from recordings of toy runs to the answer for another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import cluster, prepared, toy_run

from gnnperf.analytic import AnalyticPredictor
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.intervals.nodes import NodeIntervals
from gnnperf.gnn.intervals.steps import StepIntervals
from gnnperf.predict.intervals import CalibratedBounds, calibrated, with_interval
from gnnperf.predict.request import Mode
from tests.predict.answers import toy_answer


@pytest.fixture
def data(tmp_path: Path) -> PreparedData:
    return prepared(tmp_path)


def _runs(data: PreparedData, count: int) -> list[Step]:
    """The validation recording under several names: as if it were so many runs."""
    return [replace(data.recordings[0], run=f"run{i}/1") for i in range(count)]


def test_what_was_missed_is_what_is_reported(data: PreparedData) -> None:
    """Nine equal runs: the step's interval reaches just to what was measured in each."""
    predictor = AnalyticPredictor(data.constants)
    result = calibrated({Mode.analytic: predictor}, _runs(data, 9))
    steps = result.steps["analytic"]
    assert steps.level == pytest.approx(0.9)
    assert steps.devices == result.nodes.devices == ("v100",)
    low, high = steps.bounds_us(100.0, {"host": 1.0})
    assert low < 100.0 < high


def test_nodes_say_how_sure_they_are() -> None:
    bounds = NodeIntervals(0.9, {"v100 | analytic": (np.log(0.5), np.log(2.0))}, ("v100",))
    graph = toy_run(9)
    answer = CalibratedBounds(bounds)(AnalyticPredictor().predict(graph, cluster()), cluster())
    assert answer.latency_low_us[3] == pytest.approx(0.5 * answer.latency_us[3])
    assert answer.latency_high_us[3] == pytest.approx(2.0 * answer.latency_us[3])


STEPS = StepIntervals(0.9, {}, 0.1, 1.0, ("v100",))


def test_a_step_on_hardware_of_the_calibration_has_an_interval() -> None:
    answer = toy_answer(hardware="v100")
    given = with_interval(answer, replace(STEPS, group_error={"host": 0.0, "compute": 0.2, "collective": 0.0}))
    compute_us = answer.critical_us[(answer.prediction.graph.nodes["node_type"] == "compute").to_numpy()].sum()
    assert given.step_time_interval_us is not None
    assert given.step_time_interval_us[1] == pytest.approx(
        answer.step_time_us * np.exp(0.2 * compute_us / answer.step_time_us)
    )
    assert given.interval_level == 0.9
    assert given.warnings == answer.warnings


@pytest.mark.parametrize(
    ("hardware", "intervals", "sentences"),
    [
        ("v100", None, "it comes with a checkpoint"),
        (
            "h100_sxm",
            STEPS,
            "nothing tells how far answers for h100_sxm are off, the checkpoint was calibrated on v100",
        ),
    ],
)
def test_without_an_interval_it_is_stated_why(hardware: str, intervals: StepIntervals | None, sentences: str) -> None:
    given = with_interval(toy_answer(hardware=hardware), intervals)
    assert given.step_time_interval_us is None and given.interval_level is None
    assert sentences in given.warnings[-1]


def test_a_lower_bound_has_no_interval() -> None:
    given = with_interval(replace(toy_answer(hardware="v100"), is_lower_bound=True), STEPS)
    assert given.step_time_interval_us is None
    assert "lower bound" in given.warnings[-1]
