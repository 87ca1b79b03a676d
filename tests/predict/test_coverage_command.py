"""`gnnperf coverage`: what it prints and writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.cli import main
from gnnperf.predict import api
from gnnperf.predict.coverage import coverage_lines
from tests.predict.answers import GEMM_1, toy_answer
from tests.predict.test_fallback import _answer


def test_sources_by_nodes_and_time() -> None:
    lines = list(coverage_lines(toy_answer()))
    assert lines == [
        "analytic: 15 nodes, 100.0% of the measured node time, 100.0% of the predicted step time",
        "every op is covered",
    ]


def test_what_no_one_models_for_is_named() -> None:
    lines = list(coverage_lines(toy_answer({GEMM_1: np.nan})))
    assert "uncovered: 1 nodes, 36.4% of the measured node time, 0.0% of the predicted step time" in lines
    assert "not covered: 36.4% of the step" in lines
    assert "  aten::mm: 1 nodes" in lines


def test_the_list_to_measure_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "predict", lambda request: _answer())
    ops = tmp_path / "ops.jsonl"
    assert main(["coverage", str(tmp_path), "--ops", str(ops)]) == 0
    assert [json.loads(line)["op"] for line in ops.read_text().splitlines()] == ["aten::mm"]
    assert f"gnnperf calibrate --out mine --ops {ops}" in capsys.readouterr().out
    assert main(["coverage", str(tmp_path), "--ops", str(ops)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_an_unmeasured_step_has_no_measured_share() -> None:
    answer = toy_answer()
    graph = answer.prediction.graph
    planned = replace(graph, nodes=graph.nodes.assign(latency_us=np.nan))
    lines = list(coverage_lines(replace(answer, prediction=replace(answer.prediction, graph=planned))))
    assert "unknown of the measured node time" in lines[0]
