"""`gnnperf data`, as typed."""

from pathlib import Path

import pytest

from gnnperf.cli import main
from gnnperf.trace import read_run


@pytest.fixture(autouse=True)
def _no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNNPERF_DATA_MIRROR", raising=False)


def test_list_has_a_line_per_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "--kind", "kineto"]) == 0
    lines = capsys.readouterr().out.splitlines()
    line = next(line for line in lines if line.split()[1] == "torchrec/log/resnet18")
    assert line.split()[2] == "2"
    assert "Tesla V100-SXM2-16GB" in line and "pytorch/torchrec" in line


def test_list_files_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "--run", "dlrm-8", "--files"]) == 0
    names = [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert [n.rsplit("/")[-1] for n in names] == ["dlrm_kineto.tar.gz", "dlrm_pytorch_et.tar.gz"]


def test_fetching_nothing_in_particular_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch"]) == 2
    assert "nothing chosen" in capsys.readouterr().err


def test_files_missing_from_a_mirror_are_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mirror").mkdir()
    arguments = ["data", "fetch", "--run", "torchrec/*", "--to", str(tmp_path / "to")]
    assert main([*arguments, "--mirror", str(tmp_path / "mirror")]) == 2
    error = capsys.readouterr().err
    assert "of 26 files could not be fetched" in error
    assert error.count("not in the mirror") == 20  # the rest is counted
    assert not [p for p in (tmp_path / "to").rglob("*") if p.is_file()]


def test_a_mirror_that_is_no_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNNPERF_DATA_MIRROR", str(tmp_path / "nowhere"))
    assert main(["data", "fetch", "--run", "dlrm-8"]) == 2
    assert "GNNPERF_DATA_MIRROR" in capsys.readouterr().err


@pytest.mark.mirror
def test_fetch_a_real_run(mirror: Path, tmp_path: Path) -> None:
    arguments = ["data", "fetch", "--run", "torchrec/log/resnet18", "--to", str(tmp_path), "--mirror", str(mirror)]
    assert main(arguments) == 0
    assert len(read_run(tmp_path).tables) >= 2
