"""BENCHMARKS.md is what its saved results give, and results name what they measured."""

import ast
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from docs.made.leaderboard import COLUMNS, FILE, PAGE, page
from gnnperf import datasets
from gnnperf.analytic.device_evidence import shipped_evidence
from gnnperf.core import InputError
from gnnperf.gnn.data.prepare import PreparedData
from research.baselines.rows import TRIVIAL
from research.benchmarks import _results, leaderboard, summary
from research.benchmarks._results import FOLDER, STATEMENTS, Result, read_result, row, save_result, start_saving
from research.benchmarks.device_evidence import cpu_evidence, gpu_evidence

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


def test_the_page_is_what_the_saved_results_give() -> None:
    given = json.loads(FILE.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(given)
    rows = given["rows"]
    assert set(rows) == set(leaderboard.learners(Path())) and set(TRIVIAL) < set(rows)
    assert {key for values in rows.values() for key in values} == set(COLUMNS)
    assert len(given["commit"]) == 8


def test_rows_are_evaluated_by_the_fixed_metrics(
    data: PreparedData, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (datasets, leaderboard):
        monkeypatch.setattr(module, "prepared", lambda *_: data)
    monkeypatch.setattr(
        leaderboard, "learners", lambda _: {name: TRIVIAL[name] for name in ("analytic", "median-step")}
    )
    leaderboard.main()
    rows = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert list(rows) == ["analytic", "median-step"] and "nan" not in rows["analytic"]
    assert set(ast.literal_eval(rows["analytic"])) == set(COLUMNS) > set(ast.literal_eval(rows["median-step"]))


def test_recordings_and_tables_of_cpus_are_as_shipped() -> None:
    assert tuple(cpu_evidence()) == tuple(one for one in shipped_evidence() if one.constants == "cpu.yaml")


@pytest.mark.mirror
@pytest.mark.ci
def test_op_tables_of_gpus_are_as_counted_in_the_mirror(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNPERF_DATA_MIRROR", str(mirror))
    assert tuple(gpu_evidence()) == tuple(one for one in shipped_evidence() if one.constants != "cpu.yaml")
