"""`gnnperf data`, as typed."""

from pathlib import Path

import pytest

from gnnperf.trace import read_run
from tests.command import Command


@pytest.fixture(autouse=True)
def _no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNNPERF_DATA_MIRROR", raising=False)


def test_list_has_a_line_per_run(command: Command) -> None:
    lines = command.shown("data", "list", "--kind", "kineto").splitlines()
    line = next(line for line in lines if line.split()[1] == "torchrec/log/resnet18")
    assert line.split()[2] == "2"
    assert "Tesla V100-SXM2-16GB" in line and "pytorch/torchrec" in line


def test_list_files_of_a_run(command: Command) -> None:
    lines = command.shown("data", "list", "--run", "dlrm-8", "--files").splitlines()
    names = [line.split()[-1] for line in lines[1:]]
    assert [n.rsplit("/")[-1] for n in names] == ["dlrm_kineto.tar.gz", "dlrm_pytorch_et.tar.gz"]


def test_fetching_nothing_in_particular_is_refused(command: Command) -> None:
    assert "nothing chosen" in command.refused("data", "fetch")


def test_files_missing_from_a_mirror_are_one_message(tmp_path: Path, command: Command) -> None:
    (tmp_path / "mirror").mkdir()
    folders = ("--to", tmp_path / "to", "--mirror", tmp_path / "mirror")
    error = command.refused("data", "fetch", "--run", "torchrec/*", *folders)
    assert "of 26 files could not be fetched" in error
    assert error.count("not in the mirror") == 20  # the rest is counted
    assert not [p for p in (tmp_path / "to").rglob("*") if p.is_file()]


def test_a_mirror_that_is_no_folder_is_refused(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNNPERF_DATA_MIRROR", str(tmp_path / "nowhere"))
    assert "GNNPERF_DATA_MIRROR" in command.refused("data", "fetch", "--run", "dlrm-8")


@pytest.mark.mirror
def test_fetch_a_real_run(mirror: Path, tmp_path: Path, command: Command) -> None:
    command.shown("data", "fetch", "--run", "torchrec/log/resnet18", "--to", tmp_path, "--mirror", mirror)
    assert len(read_run(tmp_path).tables) >= 2
