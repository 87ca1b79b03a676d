"""Calibration before the first recording of a recipe: once, and not in vain."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.record import calibration
from gnnperf.record.calibration import calibrate_first, copy_calibration


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that run; each writes its folder."""
    ran: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> subprocess.CompletedProcess[bytes]:
        assert not check
        ran.append(command)
        folder = Path(command[command.index("--out") + 1])
        folder.mkdir()
        (folder / "device.yaml").write_text("name: here\n")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(calibration.subprocess, "run", run)
    return ran


def test_it_runs_once_and_goes_into_the_data_set(calls: list[list[str]], tmp_path: Path) -> None:
    raw, said = tmp_path / "raw", list[str]()
    for _ in range(2):
        calibrate_first(raw, 3.0, said.append)
    assert [command[1:] for command in calls] == [
        ["-m", "gnnperf", "calibrate", "--out", str(raw / "calibration"), "--minutes", "3"]]  # fmt: skip
    assert said == ["calibrating for 3 min"]
    for _ in range(2):
        copy_calibration(raw, tmp_path / "set")
    assert (tmp_path / "set" / "calibration" / "device.yaml").read_text() == "name: here\n"


def test_a_plan_may_do_without(calls: list[list[str]], tmp_path: Path) -> None:
    calibrate_first(tmp_path / "raw", 0.0, print)
    copy_calibration(tmp_path / "raw", tmp_path / "set")
    assert calls == [] and list(tmp_path.iterdir()) == []


def test_a_failure_stops_the_recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibration.subprocess, "run", lambda command, check: subprocess.CompletedProcess(command, 2))
    with pytest.raises(InputError, match=r"exit code 2.*--resume"):
        calibrate_first(tmp_path, 3.0, print)
