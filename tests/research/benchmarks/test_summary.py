"""BENCHMARKS.md is what its saved results give, and results name what they measured."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gnnperf.core import InputError
from research.benchmarks import _results, summary
from research.benchmarks._results import FOLDER, STATEMENTS, Result, read_result, row, save_result, start_saving

RESULT = Result((0.5, 7.0), (0.4, 0.6), "abc", "2026-11-25", "command")


def test_the_file_is_what_the_saved_results_give() -> None:
    assert summary.FILE.read_text(encoding="utf-8") == summary.text()
    assert {path.stem for path in FOLDER.glob("*.json")} == set(STATEMENTS)
    assert all(read_result(name).source in ("command", "page") for name in STATEMENTS)


def test_targets_decide_what_is_met() -> None:
    statement = replace(STATEMENTS["trace_own_gpu"], targets=(1.0, 5.0))
    assert row(statement, RESULT)[1:5] == ("0.50 / 7.00 %", "0.4 to 0.6 %", "at most 1 / 5 %", "yes / no")
    assert row(replace(statement, at_least=True, targets=(1.0, None)), RESULT)[3:5] == ("at least 1 / - %", "no")
    assert row(statement, RESULT)[6] == "2026-11-25 (abc)"
    assert row(statement, replace(RESULT, source="page"))[6] == "2026-11-25 (page, abc)"


def test_results_are_saved_on_request_with_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-q", "-m", "a")
    monkeypatch.setattr(_results, "ROOT", tmp_path)
    monkeypatch.setattr(_results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(_results, "_commit", "")
    save_result("import_speed", 99.0)
    assert not (tmp_path / "results").exists()
    start_saving()
    save_result("import_speed", 99.0)
    result = read_result("import_speed")
    assert (result.values, result.source, len(result.commit)) == ((99.0,), "command", 8)
    with pytest.raises(ValueError, match="import_speed has 1 values"):
        save_result("import_speed", 99.0, 1.0)
    (tmp_path / "code.py").write_text("2")
    with pytest.raises(InputError, match="commit them first"):
        start_saving()
