"""Damped least squares on logarithms."""

import numpy as np
import pytest

from research.fitting.logs import fit_logs, softened

X = np.array([1.0, 10.0, 100.0, 1000.0])


def test_two_constants_are_detected_from_far_away() -> None:
    measured = 5.0 + 0.25 * X
    result = fit_logs(lambda v: np.log((v[0] + v[1] * X) / measured), np.array([0.1, 10.0]), prior_weight=0.0)
    assert result == pytest.approx([5.0, 0.25], rel=1e-3)


def test_a_constant_that_nothing_reports_stays_where_it_was() -> None:
    result = fit_logs(lambda v: np.log(v[0] * X / (2.0 * X)), np.array([1.0, 7.0]), prior_weight=1e-3)
    assert result == pytest.approx([2.0, 7.0], rel=1e-3)


def test_softened_residuals_leave_small_ones_and_tame_large_ones() -> None:
    result = softened(np.array([0.0, 1e-4, -1e-4, -10.0]), 0.1)
    assert result[:3] == pytest.approx([0.0, 1e-4, -1e-4], rel=1e-3)
    assert result[3] == pytest.approx(-np.sqrt(2 * 0.1 * (10.0 - 0.1)), rel=1e-3)  # its square grows linearly


def test_one_disturbed_measurement_hardly_moves_a_softened_fit() -> None:
    measured = np.where(X == 100.0, 50.0, 2.0) * X

    def fitted(scale: float) -> float:
        return float(fit_logs(lambda v: softened(np.log(v[0] * X / measured), scale), np.array([1.0]))[0])

    assert fitted(1e3) > 4.0 and fitted(0.1) == pytest.approx(2.0, rel=0.1)
