"""Expectations on a new trace: rows of toys, tables by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gnnperf.graph.execution_graph import ExecutionGraph
from research.benchmarks import trace_parts
from research.benchmarks.trace_evidence import Forecast, OwnGpu, forecast_table, forecasts, own_gpu, own_table
from tests.toys import several_steps, two_rank_graph


def _three_steps(*period_us: float) -> ExecutionGraph:
    """The toy three times, each step with its period."""
    first = two_rank_graph().steps[0]
    return several_steps(*(replace(first, step=step, period_us=us) for step, us in enumerate(period_us)))


def test_the_default_is_the_measured_step_and_leaves_no_measured_node_uncovered() -> None:
    row = own_gpu("toy", two_rank_graph())
    assert row.default_us == pytest.approx(row.measured_us, rel=0.01)
    assert row.removed_us == row.default_us  # no stalls
    assert (row.measured_us, row.uncovered) == (185.0, 0)
    assert row.blind_us < row.measured_us


def test_a_run_of_one_step_has_no_forecast() -> None:
    assert forecasts("toy", two_rank_graph()) == []


def test_forecasts_are_compared_with_copies_and_outliers_are_named() -> None:
    rows = forecasts("toy", _three_steps(180.0, 200.0, 400.0))
    assert [row.outlier for row in rows] == [False, False, True]
    assert rows[0].copy == pytest.approx(np.mean([20 / 180, 220 / 180]))
    assert rows[1].nearest == pytest.approx(1.0)  # the later one on a tie
    assert {row.num_others for row in rows} == {2}


def test_tables_hold_medians_and_shares() -> None:
    table = own_table(
        [OwnGpu("a", "period", 100.0, 50.0, 101.0, 90.0, 7, 0), OwnGpu("b", "window", 100.0, 150.0, 97.0, 97.0, 1, 0)]
    )
    assert "| default, `stalls=keep` | measured step | 2 | 2.00 % | 2.00 % | 2.80 % | 3.00 % | -1.00 % | 0 |" in table
    assert "| measured step | 2 | 50.00 % | 50.00 % | 50.00 % | 50.00 % | +0.00 % | 8 |" in table
    assert "| default, traces with step marks | measured step | 1 | 1.00 %" in table
    steps = [Forecast("a", 0, False, 0.01, 0.02, 0.01, 2), Forecast("b", 0, False, 0.05, 0.03, 0.04, 1)]
    lines = forecast_table(steps).splitlines()
    assert lines[2] == "| all | 2 | 3.00 / 4.60 % | 2.50 / 2.90 % | 2.50 / 3.70 % | 50 % | 50 % |"
    assert lines[-1].startswith("| of these, two or more steps to predict from | 1 | 1.00 / 1.00 % |")


def test_a_trace_of_an_unnamed_gpu_has_a_default_prediction_and_no_blind_one() -> None:
    row = own_gpu("toy", replace(two_rank_graph(), device_names=("", "")))
    assert np.isnan(row.blind_us) and row.default_us == pytest.approx(row.measured_us, rel=0.01)
    named = OwnGpu("a", "period", 100.0, 50.0, 101.0, 90.0, 7, 0)
    table = own_table([row, named]).splitlines()
    assert table[2].split(" | ")[2] == "1" and table[4].split(" | ")[2] == "2"


def test_means_of_classes_are_of_the_other_steps_and_of_the_finest_class_that_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace_parts, "SHARE", 1.0)
    rows = [("aten::mm", "[2]"), ("aten::mm", "[2]"), ("aten::mm", "[4]"), ("aten::add", "[4]")]
    nodes = pd.DataFrame(rows, columns=["op_name", "input_dims"]).assign(
        event_name=["a", "a", "b", "c"], node_type="host", segment="", family=["gemm", "gemm", "gemm", "elementwise"]
    )
    steps: Any = [
        SimpleNamespace(graph=SimpleNamespace(nodes=nodes.iloc[part], num_nodes=len(part)), latency_us=np.array(us))
        for part, us in (([0], [10.0]), ([1, 2, 3], [30.0, 50.0, 7.0]))
    ]
    first, second = trace_parts.class_means(steps)
    assert first.tolist() == [30.0]
    assert second.tolist() == [10.0, 10.0, 10.0]  # by shapes, by op, by kind


def test_a_kernel_is_estimated_from_kernels_of_its_size_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_parts, "NOISES", (0.1,))  # all would err alike
    names = pd.DataFrame({"family": [*"abcd"], "op_name": [*"abcd"], "input_dims": [*"abcd"], "event_name": [*"abca"]})
    grid, block = (pd.Series([*texts, None], dtype=object) for texts in (("[1]", "[1024]", "[1000,1]"), ["[1]"] * 3))
    kernels = names.assign(grid=grid, block=block)
    logs = np.log(trace_parts.alike_us(kernels, np.exp([0.0, 4.0, 0.0, 0.0]), np.array([True, True, False, False])))
    # The two known ones have nothing in common: their mean is 2, and each is 2 / 1.1 from it. The third shares the size
    # with the second one, the last its event with the first.
    part = 2.0 / 1.1
    assert logs == pytest.approx([2.0 - part, 2.0 + part, 2.0 + part / 6, 2.0 - part / 6])
    # Kernels of one size that differ by 4 state nothing about each other: the most noise errs least.
    monkeypatch.undo()
    sizes = names.assign(event_name=[*"abcd"], grid=["[1]", "[1]", "[9]", "[9]"], block="[1]")
    logs = np.log(trace_parts.alike_us(sizes, np.exp([0.0, 4.0, 4.0, 0.0]), np.full(4, True)))
    assert logs == pytest.approx([2 - 10 / 11, 2 + 10 / 11, 2 + 10 / 11, 2 - 10 / 11])
