"""`python -m research.benchmarks.learned`: which cells it asks for, and what it prints of those that are there."""

from pathlib import Path

import pytest

from gnnperf.core import InputError
from research.benchmarks import __main__ as benchmarks_main
from research.benchmarks._learned_jobs import FIXED, LEARNED, data_config, jobs_of
from research.benchmarks.learned import main
from tests.research.evaluation.made_records import folder_of, made


def test_jobs_of_a_split(tmp_path: Path) -> None:
    """What chance has no part in is one cell; the floor needs recordings one by one, as the test part has them."""
    sentences = [str(job) for job in jobs_of(tmp_path, "size", ["gnn", "analytic", "mlp"], [0, 1], "test")]
    assert sentences == ["size/another-recording/fixed", "size/analytic/fixed",
                    "size/gnn/0", "size/mlp/0", "size/gnn/1", "size/mlp/1"]  # fmt: skip
    assert [str(job) for job in jobs_of(tmp_path, "size", ["gnn"], [3], "val")] == ["size/gnn/3"]


def test_rows_have_one_name_and_say_what_they_were_reported() -> None:
    assert not set(FIXED) & set(LEARNED)
    given = [repr(learner) for learner in (FIXED | LEARNED).values()]
    assert len(set(given)) == len(given)
    assert not any(" at 0x" in one for one in given)  # an address would make every cell anew


def test_the_data_are_those_of_training() -> None:
    assert data_config("link").axis == "link"
    assert all(Path(table).is_file() for table in data_config("link").op_tables)


def test_tables_of_the_records_that_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path, made(seed=0), made(seed=1, code="other"), made("pooled", nodes=False),
                       made("another-recording", seed=None), made("gnn", split="moon"))  # fmt: skip
    assert main(["--print-only", "--out", str(folder)]) == 0
    sentences = capsys.readouterr().out
    assert "size: node latencies" in sentences and "moon" not in sentences
    gnn, floor, pooled = (next(line for line in sentences.splitlines() if line.split()[:1] == [row])
                          for row in ("gnn", "another-recording", "pooled"))  # fmt: skip
    assert gnn.split()[1:5] == ["2", "3", "100.0", "20.0"]  # (10 x 20 x 40 %)^(1/3)
    assert sentences.index(floor) > sentences.index(pooled)
    assert pooled.count("-") > 9  # whole steps only
    assert "5 cells, fitted in 0.0 hours" in sentences
    assert "Cells of 2 versions of the learning code: c, other." in sentences


def test_records_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, made(), made("mlp", data="of other runs"))
    with pytest.raises(InputError, match="row mlp: fitted on other data"):
        main(["--print-only", "--out", str(folder)])
    with pytest.raises(InputError):
        main(["--print-only", "--out", str(tmp_path / "nowhere")])


def test_options_go_to_the_benchmark_that_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: list[tuple[str, tuple[str, ...]]] = []

    def noted(name: str, options: tuple[str, ...]) -> int:
        run.append((name, tuple(options)))
        return 0

    monkeypatch.setattr(benchmarks_main, "_run", noted)
    assert benchmarks_main.main(["learned", "--rows", "gnn"]) == 0
    assert run == [("learned", ("--rows", "gnn"))]
    assert benchmarks_main.main(["--rows", "gnn"]) == 2
    assert "Name it first" in capsys.readouterr().err
    run.clear()
    assert benchmarks_main.main([]) == 0
    assert {name for name, _ in run} == set(benchmarks_main.names()) - set(benchmarks_main.BY_NAME)
    assert {"speed", "replay"} <= {name for name, _ in run} and "learned" in benchmarks_main.names()
