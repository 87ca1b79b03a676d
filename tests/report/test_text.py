from __future__ import annotations

import math

import pytest

from gnnperf.report.text import time_text


@pytest.mark.parametrize(
    ("time_us", "sentences"),
    [
        (12.34567, "12.35 us"), (1234.5678, "1.235 ms"), (2.5e6, "2.5 s"), (-1500.0, "-1.5 ms"), (0.001, "0.001 us"),
        (3.165e-10, "0 us"), (-1e-7, "0 us"), (0.0, "0 us"), (None, "unknown"), (math.nan, "unknown"),
    ],
)  # fmt: skip
def test_a_duration_has_four_digits_and_its_unit(time_us: float | None, sentences: str) -> None:
    assert time_text(time_us) == sentences
