"""A round that fails, stated in one message."""

import math
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.hardware import Measured
from gnnperf.record.calibrate import rounds
from gnnperf.record.calibrate.job import Job
from gnnperf.record.calibrate.point import CLOCK_US, interval_of, intervals, log_sd, t_975, widened
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


# Intervals, by hand: logs of 100, 110, 121, 110, 100 are 2 steps of log 1.1.

STEP = math.log(1.1)


def test_spread_of_three_rounds_one_step_apart_and_none_of_one_round():
    assert log_sd((100.0, 110.0, 121.0)) == pytest.approx(STEP)  # (-s, 0, s): variance 2 s^2 / 2
    assert math.isnan(log_sd((3.0,)))
    with pytest.raises(ValueError, match="1 round"):
        interval_of((3.0,))


def test_interval_of_three_rounds():
    result = interval_of((100.0, 110.0, 121.0))
    half = 4.303 * math.sqrt(math.pi / 2) * STEP * math.sqrt(2 / 3)
    assert result.value == pytest.approx(110.0)
    assert (result.low, result.high) == pytest.approx((110 * math.exp(-half), 110 * math.exp(half)))


def test_rounds_that_agree_by_chance_take_the_typical_spread_of_their_kind():
    result = interval_of((5.0, 5.0, 5.0, 5.0, 5.0), least_log_sd=0.01)
    half = 2.776 * math.sqrt(math.pi / 2) * 0.01 * math.sqrt(2 / 5)
    assert result.high == pytest.approx(5 * math.exp(half))
    kinds = {"lucky": "op", "usual": "op", "wild": "op"}
    together = intervals({"lucky": (5.0, 5.0), "usual": (5.0, 5.5), "wild": (5.0, 10.0)}, kinds)
    isolated = intervals({"lucky": (5.0, 5.0)}, kinds)["lucky"]
    assert (isolated.low, isolated.high) == pytest.approx((5 - CLOCK_US, 5 + CLOCK_US))
    half = 12.706 * math.sqrt(math.pi / 2) * log_sd((5.0, 5.5)) * math.sqrt(2 / 2)
    assert together["lucky"].high == pytest.approx(5 * math.exp(half) + CLOCK_US)


def test_degrees_between_entries_take_the_wider_value():
    assert t_975(4) == 2.776
    assert t_975(13) == t_975(12)
    assert t_975(10_000) == 1.980


def test_the_clock_widens_but_never_below_zero():
    result = widened(Measured(1.0, 0.9, 1.1), 0.05)
    assert (result.value, result.low, result.high) == pytest.approx((1.0, 0.85, 1.15))
    assert widened(Measured(0.06, 0.05, 0.07), 0.05).low == pytest.approx(0.025)


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=15), st.floats(1e-3, 1e3))
def test_interval_holds_its_value_and_scales_with_the_unit(medians: list[float], factor: float):
    result, scaled = interval_of(medians), interval_of([factor * m for m in medians])
    assert result.low <= result.value <= result.high
    assert scaled.value == pytest.approx(factor * result.value)
    assert scaled.high / scaled.value == pytest.approx(result.high / result.value, rel=1e-6)
