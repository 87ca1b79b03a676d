"""Refusing what is not covered, with the measurement that would cover it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.core.errors import InputError
from gnnperf.predict import StepPrediction, api
from gnnperf.predict.coverage import NotCovered, check_covered, coverage_lines, ops_to_measure, uncovered_share
from gnnperf.predict.request import FallbackConfig
from gnnperf.record.calibrate.ops_file import read_ops
from tests.command import Command
from tests.predict.predictions import GEMM_0, GEMM_1, toy_prediction


def _prediction(dims: str | None = "[[64,32],[32,16]]") -> StepPrediction:
    """Both gemms without a latency; theirs is 220 of 330 measured us."""
    result = toy_prediction({GEMM_0: np.nan, GEMM_1: np.nan})
    graph = result.prediction.graph
    columns = graph.nodes["input_dims"].astype(object)
    columns[[GEMM_0, GEMM_1]] = dims
    nodes = graph.nodes.assign(input_dims=columns.astype("category"))
    return replace(result, prediction=replace(result.prediction, graph=replace(graph, nodes=nodes)))


def test_too_little_is_refused_with_what_to_measure(tmp_path: Path) -> None:
    share = 220 / 330
    with pytest.raises(NotCovered, match=r"66\.7% of the step is not covered: aten::mm \(2\)") as caught:
        check_covered(_prediction(), FallbackConfig(share - 0.01))
    assert caught.value.exit_code == 3
    assert "gnnperf calibrate --out mine --ops ops.jsonl" in str(caught.value)
    check_covered(_prediction(), FallbackConfig(share + 0.01))
    check_covered(toy_prediction(), FallbackConfig(0.0))


def test_the_lines_are_a_list_that_calibrate_takes(tmp_path: Path) -> None:
    lines = list(ops_to_measure(_prediction()))
    assert [json.loads(line)["shapes"] for line in lines] == [[[64, 32], [32, 16]]]  # once, for both
    path = tmp_path / "ops.jsonl"
    path.write_text("\n".join(lines))
    assert read_ops(path)[0].op == "aten::mm"


def test_without_shapes_there_is_nothing_to_measure() -> None:
    assert list(ops_to_measure(_prediction(None))) == []
    with pytest.raises(NotCovered, match="record with record_shapes=True"):
        check_covered(_prediction(None), FallbackConfig(0.1))


def test_a_step_that_no_one_ran_counts_nodes() -> None:
    assert uncovered_share(replace(_prediction(), uncovered_measured_share=None)) == pytest.approx(2 / 15)


def test_a_share_is_a_share() -> None:
    with pytest.raises(InputError, match=r"fallback\.max_uncovered_share: bad value 1\.5"):
        FallbackConfig(1.5)


def test_sources_by_nodes_and_time() -> None:
    lines = list(coverage_lines(toy_prediction()))
    assert lines == [
        "analytic: 15 nodes, 100.0% of the measured node time, 100.0% of the predicted step time",
        "every op is covered",
    ]


def test_what_no_one_models_for_is_named() -> None:
    lines = list(coverage_lines(toy_prediction({GEMM_1: np.nan})))
    assert "uncovered: 1 node, 36.4% of the measured node time, 0.0% of the predicted step time" in lines
    assert "not covered: 36.4% of the step" in lines
    assert "  aten::mm: 1 node" in lines


def test_the_list_to_measure_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setattr(api, "predict", lambda request: _prediction())
    ops = tmp_path / "ops.jsonl"
    shown = command.shown("coverage", tmp_path, "--ops", ops)
    assert [json.loads(line)["op"] for line in ops.read_text().splitlines()] == ["aten::mm"]
    assert f"gnnperf calibrate --out mine --ops {ops}" in shown
    assert "is there already" in command.refused("coverage", tmp_path, "--ops", ops)


def test_an_empty_list_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setattr(api, "predict", lambda request: toy_prediction())
    shown = command.shown("coverage", tmp_path, "--ops", tmp_path / "ops.jsonl")
    assert "ops.jsonl: not written: there is no call to measure" in shown
    assert list(tmp_path.iterdir()) == []


def test_an_unmeasured_step_has_no_measured_share() -> None:
    result = toy_prediction()
    graph = result.prediction.graph
    planned = replace(graph, nodes=graph.nodes.assign(latency_us=np.nan))
    lines = list(coverage_lines(replace(result, prediction=replace(result.prediction, graph=planned))))
    assert "unknown of the measured node time" in lines[0]
