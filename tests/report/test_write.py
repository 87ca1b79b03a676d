"""The output folder: all four files or nothing, and no one else's files are touched."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.report import check_output, write, write_report
from gnnperf.report.write import FILES
from tests.predict.answers import GEMM_1, toy_answer


def _names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_all_four_files_and_nothing_with_them(tmp_path: Path) -> None:
    written = write_report(toy_answer(), tmp_path / "deep" / "out")
    assert [p.name for p in written] == list(FILES)
    assert _names(tmp_path / "deep") == ["out"]
    assert json.loads((tmp_path / "deep/out/prediction.json").read_text())["step_time_us"] == 185.0
    assert len(pd.read_parquet(tmp_path / "deep/out/nodes.parquet")) == 18
    assert json.loads(gzip.decompress((tmp_path / "deep/out/timeline.json.gz").read_bytes()))["traceEvents"]


def test_earlier_prediction_is_replaced(tmp_path: Path) -> None:
    write_report(toy_answer(), tmp_path / "out")
    write_report(toy_answer({GEMM_1: 305.0}), tmp_path / "out")
    assert json.loads((tmp_path / "out/prediction.json").read_text())["step_time_us"] == 370.0
    assert _names(tmp_path) == ["out"]


def test_folder_with_other_files_is_refused_and_retained(tmp_path: Path) -> None:
    write_report(toy_answer(), tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        write_report(toy_answer(), tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_files_of_our_names_by_someone_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("another tool's")
    with pytest.raises(InputError, match="not a prediction of gnnperf"):
        check_output(tmp_path)


def test_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        check_output(tmp_path / "out")
    with pytest.raises(InputError, match="cannot be written to"):
        check_output(tmp_path / "out" / "deeper")


def test_empty_folder_is_fine(tmp_path: Path) -> None:
    assert check_output(tmp_path) == tmp_path


@pytest.mark.parametrize("earlier", [False, True])
def test_failure_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: bool) -> None:
    if earlier:
        write_report(toy_answer({GEMM_1: 305.0}), tmp_path / "out")

    def full_disk(answer: object, nodes: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "html_report", full_disk)
    with pytest.raises(InputError, match="No space left on device"):
        write_report(toy_answer(), tmp_path / "out")
    assert _names(tmp_path) == (["out"] if earlier else [])
    if earlier:
        assert json.loads((tmp_path / "out/prediction.json").read_text())["step_time_us"] == 370.0


@pytest.mark.parametrize("earlier", [False, True])
def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: bool) -> None:
    if earlier:
        write_report(toy_answer({GEMM_1: 305.0}), tmp_path / "out")

    def interrupted(*answer: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "html_report", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_report(toy_answer(), tmp_path / "out")
    assert _names(tmp_path) == (["out"] if earlier else [])
    if earlier:
        assert _names(tmp_path / "out") == sorted(FILES)
        assert json.loads((tmp_path / "out/prediction.json").read_text())["step_time_us"] == 370.0


@pytest.mark.parametrize("place", [0, 1])
def test_ctrl_c_between_the_two_renames_brings_the_earlier_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """Interrupted before the first of them, or after it: the earlier prediction is where it was."""
    write_report(toy_answer({GEMM_1: 305.0}), tmp_path / "out")
    rename, calls = Path.rename, list[Path]()

    def interrupted(path: Path, target: Path) -> Path:
        calls.append(path)
        if len(calls) == place + 1:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr("gnnperf.core.files._exchange", lambda one, other: False)  # as on some file systems
    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_report(toy_answer(), tmp_path / "out")
    assert _names(tmp_path) == ["out"]
    assert json.loads((tmp_path / "out/prediction.json").read_text())["step_time_us"] == 370.0
