"""Bounds of one more generation, by hand."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic import read_constants
from gnnperf.gnn.intervals.devices import DeviceIntervals
from research.fitting.device_intervals import (
    expected_bounds,
    fit_device_intervals,
    save_device_intervals,
    student_quantile,
)

SCORES = np.arange(-9.0, 10.0)  # 19: with one more each place in order is a twentieth


def _held_out(**families: tuple[str, ...]) -> pd.DataFrame:
    """SCORES of each generation of each family, 1 more for every generation."""
    rows = [
        pd.DataFrame({"generation": name, "family": family, "dtype": "float32", "score": SCORES + place})
        for family, generations in families.items() for place, name in enumerate(generations)
    ]  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def test_quantiles_of_one_more_generation_are_expected_outside_those_that_differ() -> None:
    """Quantiles -9 to 9, -8 to 10, -7 to 11: means -8 and 10, deviation 1; t with two degrees of freedom is 1.8856."""
    scores, names = np.r_[SCORES, SCORES + 1, SCORES + 2], np.repeat(["a", "b", "c"], 19)
    reach = 1.8856 * math.sqrt(4 / 3)
    assert expected_bounds(scores, names, 0.9) == pytest.approx((-8 - reach, 10 + reach), abs=1e-3)
    assert expected_bounds(SCORES, names[:19], 0.9) == (-math.inf, math.inf)


@pytest.mark.parametrize(("freedom", "value"), [(1, 3.0777), (2, 1.8856), (3, 1.6377), (30, 1.3104)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert student_quantile(0.9, freedom) == pytest.approx(value, abs=1e-3)


def test_bounds_of_family_and_dtype_then_of_a_family_in_several_dtypes() -> None:
    several = _held_out(softmax=("a", "b", "c"))
    several = pd.concat([several, several.assign(dtype="float16")])
    result = fit_device_intervals(pd.concat([_held_out(gemm=("a", "b", "c"), conv=("a", "b")), several]), 0.9)
    assert set(result.log_bounds) == {"gemm | float32", "softmax", "softmax | float16", "softmax | float32"}
    assert result.generations == ("a", "b", "c")
    low, high = result.log_bounds["gemm | float32"]
    assert result.log_bounds["softmax"] == pytest.approx((low, high), abs=0.2)  # twice the scores, nearly as far
    family = np.array(["gemm", "softmax", "gemm", "conv", None], dtype=object)
    dtype = np.array(["float32", "float64", "float64", "float32", None], dtype=object)
    low_us, high_us = result.bounds_us(family, dtype, np.full(5, 2.0))
    assert np.isnan(low_us).tolist() == np.isnan(high_us).tolist() == [False, False, True, True, True]
    assert (low_us[0], high_us[0]) == pytest.approx((2 * math.exp(low), 2 * math.exp(high)))


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = DeviceIntervals(0.9, {"gemm | float32": (-0.25, 0.5)}, ("ada", "hopper"), "by hand")
    path = tmp_path / "unseen.yaml"
    save_device_intervals(written, path)
    assert read_constants(path, DeviceIntervals) == written
