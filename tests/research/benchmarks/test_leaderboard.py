"""The leaderboard: its page is what the saved results give, and its rows are all baselines of the repository."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from docs.made.leaderboard import COLUMNS, FILE, PAGE, page
from gnnperf import datasets
from research.baselines.rows import TRIVIAL
from research.benchmarks import leaderboard
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
    monkeypatch.setattr(
        leaderboard, "learners", lambda _: {name: TRIVIAL[name] for name in ("analytic", "median-step")}
    )
    leaderboard.main()
    rows = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert list(rows) == ["analytic", "median-step"] and "nan" not in rows["analytic"]
    assert set(ast.literal_eval(rows["analytic"])) == set(COLUMNS) > set(ast.literal_eval(rows["median-step"]))
