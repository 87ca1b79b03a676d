"""What the terminal shows."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from gnnperf.core.schema import Source
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.console import print_summary
from gnnperf.report.text import time_text
from tests.predict.answers import GEMM_1, toy_answer


def _shown(answer: StepPrediction) -> str:
    stream = io.StringIO()
    print_summary(answer, [Path("out/report.html")], Console(file=stream, width=140))
    return stream.getvalue()


def test_answer_kind_error_shares_ops_and_files_are_shown() -> None:
    shown = _shown(toy_answer({GEMM_1: 305.0}))
    for part in (
        "step makespan: 370 us", "measured makespan: 185 us; error +100.0 %", "analytic 100.0 %", "compute 82.4 %",
        "every op is covered", "wrote out/report.html",
    ):  # fmt: skip
        assert part in shown
    first = next(line for line in shown.splitlines() if line.startswith("aten::mm"))
    assert first.split() == ["aten::mm", "compute", "2", "305", "us", "405", "us", "220", "us"]


def test_how_sure_a_step_is_stands_with_it() -> None:
    answer = replace(toy_answer({GEMM_1: 305.0}), step_time_interval_us=(330.0, 1415.0), interval_level=0.9)
    assert "step makespan: 370 us, 90 % of steps within 330 us to 1.415 ms" in _shown(answer)


def test_what_is_not_covered_is_named() -> None:
    shown = _shown(toy_answer({GEMM_1: np.nan}))
    assert "step makespan: at least 165 us" in shown
    assert "not covered: aten::mm (1)" in shown
    assert "nodes by source: 14 analytic, 1 uncovered; uncovered nodes hold 36.4 % of the measured node time" in shown


def test_where_a_network_answers_it_is_stated_why_it_does_not_isolated() -> None:
    answer = toy_answer()
    source, reason = answer.prediction.source.copy(), answer.prediction.reasons.copy()
    source[:9], source[9] = Source.GNN, Source.GNN_CALIBRATED
    reason[9] = "op not in the vocabulary"
    blended = replace(answer, prediction=replace(answer.prediction, source=source, reason=reason))
    line = "because: 5 analytic (no network was asked); 1 gnn_calibrated (op not in the vocabulary)"
    assert line in _shown(blended)
    assert "because" not in _shown(answer)


def test_names_from_a_trace_are_no_markup() -> None:
    assert "[bold]x[/bold]" in _shown(replace(toy_answer(), warnings=("[bold]x[/bold]",)))


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(0.0, "0 us"), (12.345, "12.35 us"), (1500.0, "1.5 ms"), (2.5e6, "2.5 s"), (None, "unknown"), (np.nan, "unknown")],
)
def test_times_transfer_their_unit(time_us: float | None, text: str) -> None:
    assert time_text(time_us) == text
