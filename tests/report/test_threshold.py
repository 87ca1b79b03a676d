"""Limits on a predicted step: 185 us in the toy, 370 us with a longer gemm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.core.schema import StepTimeKind
from gnnperf.report import write_report
from gnnperf.report.compare.text import StepTooLong, read_threshold
from tests.predict.answers import GEMM_1, toy_answer


@pytest.fixture(name="before")
def _before(tmp_path: Path) -> Path:
    write_report(toy_answer(), tmp_path / "before")
    return tmp_path / "before"


def test_a_longest_step() -> None:
    read_threshold(0.185, None, None).check(toy_answer())
    with pytest.raises(StepTooLong, match=r"the step takes 185 us, more than 0\.18 ms \(--max-step-ms\)") as error:
        read_threshold(0.18, None, None).check(toy_answer())
    assert error.value.exit_code == 4


@pytest.mark.parametrize("name", ["", "prediction.json"])
def test_no_longer_than_an_earlier_prediction(before: Path, name: str) -> None:
    read_threshold(None, 100.0, str(before / name)).check(toy_answer({GEMM_1: 305.0}))
    read_threshold(None, 0.0, str(before / name)).check(toy_answer())
    with pytest.raises(StepTooLong, match=r"is 100\.0 % longer than that of .*before.*, more than 5 %") as error:
        read_threshold(0.2, 5.0, str(before / name)).check(toy_answer({GEMM_1: 305.0}))
    assert "370 us, more than 0.2 ms" in str(error.value)


def test_two_kinds_of_steps_are_not_compared(before: Path) -> None:
    window = replace(toy_answer(), step_time_kind=StepTimeKind.WINDOW)
    with pytest.raises(InputError, match="its step is a makespan, the predicted one a window"):
        read_threshold(None, 5.0, str(before)).check(window)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((None, 5.0, None), "max_regression: bad value 5.0. Allowed: with against"),
        ((None, None, "{before}"), "max_regression: bad value None"),
        ((-1.0, None, None), "--max-step-ms: bad value -1.0"),
        ((float("nan"), None, None), "--max-step-ms: bad value nan"),
        ((None, 5.0, "no/such"), "no/such: cannot be read"),
        ((None, 5.0, "{before}/nodes.parquet"), "JSON is malformed"),
    ],
)
def test_what_is_no_limit_is_refused_before_the_work(
    before: Path, limits: tuple[float | None, float | None, str | None], message: str
) -> None:
    against = None if limits[2] is None else limits[2].format(before=before)
    with pytest.raises(InputError) as error:
        read_threshold(limits[0], limits[1], against)
    assert message in str(error.value)
    assert error.value.exit_code == 2
