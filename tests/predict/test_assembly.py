"""Step time, shares and warnings of the toy graph, computed by hand (drawing: tests/toys.py).

launch is start-to-start, so the path is T2 10 | T4 0 | gemm of rank 1 120 | all_reduce 50 | T1 5 = 185 us.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnperf.core.schema import StepTimeKind
from gnnperf.hardware.contention import Contention
from gnnperf.predict.assembly import assemble, step_time_kind
from gnnperf.predict.request import Mode
from tests.predict.answers import COLLECTIVE, GEMM_0, GEMM_1, Fixed, question, toy_answer
from tests.toys import two_rank_graph

LABEL = two_rank_graph().steps[0]


def test_makespan_is_the_hand_computed_one() -> None:
    answer = toy_answer()
    assert answer.step_time_kind is StepTimeKind.MAKESPAN
    assert answer.step_time_us == pytest.approx(185.0)
    assert answer.step_time_error == pytest.approx(0.0)
    assert answer.rank_step_time_us == pytest.approx({0: 185.0, 1: 185.0})


def test_critical_time_sums_to_the_step_time_and_names_its_types() -> None:
    answer = toy_answer()
    assert answer.critical_us.sum() == pytest.approx(185.0)
    assert answer.critical_us[GEMM_1] == pytest.approx(120.0)
    assert answer.critical_us[GEMM_0] == 0.0
    expected = {"compute": 120 / 185, "collective": 50 / 185, "host": 15 / 185, "comm": 0.0}
    assert answer.critical_path_share == pytest.approx(expected)
    assert answer.source_share == pytest.approx({"analytic": 1.0})


def test_delay_after_a_node_is_part_of_its_critical_time_and_reported_apart() -> None:
    """7 us between gemm and arrival on rank 1: 192 us, of which the gemm's 127 are 120 of work and 7 of delay."""
    graph = two_rank_graph()
    prediction = Fixed().predict(graph, None)  # type: ignore[arg-type]
    between = (graph.edges["src"] == GEMM_1) & (graph.edges["relation"] == "follows")
    delayed = replace(prediction, lag_us=np.where(between, 7.0, 0.0))
    answer = assemble(delayed, question(LABEL))
    assert answer.step_time_us == pytest.approx(192.0)
    assert answer.critical_us[GEMM_1] == pytest.approx(127.0)
    assert answer.critical_delay_us == pytest.approx(7.0)
    assert toy_answer().critical_delay_us == 0.0


def test_slower_kernel_of_the_fast_rank_moves_the_path() -> None:
    answer = toy_answer({GEMM_0: 200.0})
    assert answer.step_time_us == pytest.approx(10 + 200 + 50 + 5)
    assert answer.critical_us[GEMM_0] == pytest.approx(200.0)
    assert answer.step_time_error == pytest.approx(265 / 185 - 1)


def test_latencies_isolated_are_stretched_and_reported_as_scheduled() -> None:
    """Both ranks on one core: T2 of both at half rate until 20, T4 until 30, ... gemm of rank 0 and T3 share too."""
    contention = Contention(ranks_per_node=2, cores_per_node=1.0)
    prediction = Fixed(contention=contention).predict(two_rank_graph(), None)  # type: ignore[arg-type]
    answer = assemble(prediction, question(LABEL))
    assert answer.prediction.latency_us[[0, 7]].tolist() == [20.0, 20.0]
    # 10 + 5 + 10 + 100 + 10 + 5 + 10 + 120 us of work on one core, then the all-reduce 50, then T1 of both ranks 10.
    assert answer.step_time_us == pytest.approx(270.0 + 50.0 + 10.0)
    assert answer.prediction.isolated is None
    assert answer.prediction.analytic_latency_us[0] == 10.0


def test_uncovered_node_makes_a_lower_bound_that_states_so() -> None:
    answer = toy_answer({GEMM_1: np.nan, GEMM_0: np.nan})
    assert answer.is_lower_bound
    assert answer.uncovered_ops == {"aten::mm": 2}
    assert answer.uncovered_measured_share == pytest.approx(220 / (2 * 30 + 220 + 50))
    assert answer.step_time_us == pytest.approx(10 + 0 + 50 + 5)
    assert answer.warnings[0].startswith(
        "2 nodes of ops aten::mm (2) are not covered (66.7 % of the trace's measured node time)"
    )
    assert "lower bound" in answer.warnings[0]
    assert np.isnan(answer.prediction.latency_us[GEMM_1])  # the hole stays visible per node


def test_covered_step_is_no_lower_bound() -> None:
    assert not toy_answer().is_lower_bound
    assert not any("not covered" in warning for warning in toy_answer().warnings)


def test_other_hardware_has_no_error_but_keeps_the_traced_time() -> None:
    answer = toy_answer(same_hardware=False, hardware="h100_sxm")
    assert answer.measured_step_time_us is None
    assert answer.step_time_error is None
    assert answer.traced_step_time_us == 185.0
    assert any("h100_sxm" in warning for warning in answer.warnings)


def test_period_where_the_step_has_one() -> None:
    """Steady state: both streams carry over, and each step's host waits for its all_reduce: 185 us again."""
    answer = toy_answer(label=replace(LABEL, period_us=190.0))
    assert answer.step_time_kind is StepTimeKind.PERIOD
    assert answer.step_time_us == pytest.approx(185.0)
    assert answer.measured_step_time_us == 190.0
    assert answer.critical_us.sum() == pytest.approx(answer.step_time_us)


def test_window_is_a_kind_of_its_own() -> None:
    assert step_time_kind(replace(LABEL, name="window")) is StepTimeKind.WINDOW


def test_skewed_rank_starts_are_stated() -> None:
    answer = toy_answer(label=replace(LABEL, rank_start_us=(0.0, 60.0)))
    assert answer.rank_start_skew_us == 60.0
    assert any("60 us apart" in warning for warning in answer.warnings)
    replayed = toy_answer(label=replace(LABEL, rank_start_us=(0.0, 60.0)), mode=Mode.replay)
    assert not any("us apart" in warning for warning in replayed.warnings)  # a replay keeps the measured starts


def test_untraced_ranks_are_stated() -> None:
    graph = replace(two_rank_graph(), world_size=8)
    answer = assemble(Fixed().predict(graph, None), question(LABEL))  # type: ignore[arg-type]
    assert any(warning.startswith("6 of 8 ranks were not traced") for warning in answer.warnings)


@pytest.mark.parametrize("scale", [0.0, 0.5, 10.0])
def test_collective_on_the_path_scales_the_step(scale: float) -> None:
    assert toy_answer({COLLECTIVE: 50.0 * scale}).step_time_us == pytest.approx(135 + 50 * scale)
