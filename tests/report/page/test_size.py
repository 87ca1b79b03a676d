"""Reports of large steps stay small, quick to write and quick to open."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gnnperf.predict.step_prediction import StepPrediction
from research.benchmarks._chromium import Page, chromium
from research.benchmarks.report_speed import DRAWN, as_if_recorded, dlrm, planned
from tests.report.page.pages import page_of

OPENS_S = 3.0


def _check(answer: StepPrediction, path: Path, most_s: float, most_bytes: float) -> None:
    begin = time.process_time()  # the processor's: a busy machine makes no page slower
    path.write_text(page_of(answer), encoding="utf-8")
    assert time.process_time() - begin < most_s
    assert path.stat().st_size < most_bytes
    program = chromium()
    if program is not None:
        with Page(program) as page:
            page.open(path, DRAWN)
            assert page.complaints() == []
            assert page.opened_s < OPENS_S


@pytest.mark.mirror
def test_eight_recorded_ranks(mirror: Path, tmp_path: Path) -> None:
    _check(dlrm(mirror), tmp_path / "report.html", 10.0, 6e6)


@pytest.mark.slow
def test_two_hundred_thousand_nodes(tmp_path: Path) -> None:
    """As if recorded: a plan's numbers repeat and compress far better than a recording's."""
    answer = as_if_recorded(planned())
    assert answer.prediction.graph.num_nodes >= 200_000
    _check(answer, tmp_path / "report.html", 30.0, 15e6)
