"""A round that fails, stated in one message."""

from __future__ import annotations

import subprocess

import pytest

from gnnperf.core.errors import InputError
from gnnperf.record.calibrate import rounds
from gnnperf.record.calibrate.job import Job
from gnnperf.record.calibrate.run import Ask, job_for, machine


@pytest.fixture(scope="module")
def job() -> Job:
    return job_for(machine("cpu"), Ask(1))


@pytest.mark.parametrize(
    ("code", "stderr", "message"),
    [
        (-9, "", r"a round was killed by SIGKILL.*nothing was written"),
        (1, "Traceback\nOSError: disk full\n", r"exit code 1 \(OSError: disk full\)"),
        (1, "", r"exit code 1 \(no error message\)"),
        (2, "aten::mm: shapes do not fit.\n", r"aten::mm: shapes do not fit"),
    ],
)
def test_a_failed_round_is_one_message(
    monkeypatch: pytest.MonkeyPatch, job: Job, code: int, stderr: str, message: str
) -> None:
    ended = subprocess.CompletedProcess([], code, stdout="", stderr=stderr)
    monkeypatch.setattr(rounds.subprocess, "run", lambda *args, **kwargs: ended)
    with pytest.raises(InputError, match=message):
        rounds.run_rounds(job, 0.01)
