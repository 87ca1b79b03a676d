"""The leaderboard: its page is what the saved results give, and its rows are all baselines of the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnperf import datasets
from research.baselines.rows import TRIVIAL
from research.benchmarks import leaderboard
from research.benchmarks._leaderboard_page import COLUMNS, FILE, PAGE, page
from tests.predict.doubled import toy_data


def test_the_page_is_what_the_saved_results_give() -> None:
    given = json.loads(FILE.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(given)
    rows = given["rows"]
    assert set(rows) == set(leaderboard.learners(Path())) and set(TRIVIAL) < set(rows)
    assert {key for values in rows.values() for key in values} == set(COLUMNS)
    assert len(given["commit"]) == 8


def test_rows_are_evaluated_by_the_fixed_metrics(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toy_data()
    for module in (datasets, leaderboard):
        monkeypatch.setattr(module, "prepared", lambda *_: data)
    leaderboard.main(["--rows", "analytic", "median-step", "--seeds", "0"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| analytic", "| median-step"]
    assert lines[3].count(" - ") == 5 and "nan" not in "".join(lines)
