"""Errors by op family, by hand on the toy."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.report.summary import family_errors, nodes_table
from tests.predict.answers import GEMM_0, GEMM_1, toy_answer


def test_errors_of_sums_and_of_nodes() -> None:
    """gemm: 150 for 100 and 90 for 120, so 240 for 220; the nodes are off by 50 and 25 %."""
    gemm = family_errors(nodes_table(toy_answer({GEMM_0: 150.0, GEMM_1: 90.0}))).set_index("family").loc["gemm"]
    assert gemm["num_nodes"] == 2
    assert gemm["sum_error"] == pytest.approx(240.0 / 220.0 - 1.0)
    assert gemm["median_error"] == pytest.approx(0.375)
    assert gemm["p90_error"] == pytest.approx(0.25 + 0.9 * 0.25)


def test_nodes_without_an_answer_or_a_measurement_are_left_out() -> None:
    result = family_errors(nodes_table(toy_answer({GEMM_0: np.nan}))).set_index("family")
    assert result.loc["gemm", "num_nodes"] == 1
    assert result.loc["gemm", "measured_us"] == 120.0
    assert "arrival and exit" not in result.index  # measured as 0 us: no relative error
