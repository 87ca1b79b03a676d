"""What a few labels say: factors that they tell, those that they do not, and which graphs they speak for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from research.fitting.adapt import PARTS, UNLABELED, StepLinearBounds, adapt, fit_factors, left_out_error

BATCHES = np.array([1.0, 2.0, 4.0, 8.0])
ONES = np.ones(len(PARTS))


def steps(kernel_us: float = 100.0, host_us: float = 300.0) -> StepLinearBounds:
    """One step per batch: the host's 300 us, or 100 us of kernels per sample; no transfers."""
    host, device = np.zeros((4, len(PARTS) + 1)), np.zeros((4, len(PARTS) + 1))
    host[:, 0], device[:, 2] = host_us, kernel_us * BATCHES
    return StepLinearBounds(np.stack([host, device], axis=1))


def test_a_step_is_its_longest_path() -> None:
    assert steps().step_us(ONES).tolist() == [300.0, 300.0, 400.0, 800.0]
    assert steps().step_us(np.array([2.0, 1.0, 0.5, 1.0, 1.0])).tolist() == [600.0, 600.0, 600.0, 600.0]


def test_labels_tell_host_and_kernels_and_nothing_else() -> None:
    """The host 1.5 times, kernels 1.2 times as slow: 450, 450, 480 and 960 us."""
    labels = np.array([450.0, 450.0, 480.0, 960.0])
    host, calls, kernels, transfers, gaps = fit_factors(steps(), labels, 0.001)
    assert (host, kernels) == (pytest.approx(1.5, rel=0.01), pytest.approx(1.2, rel=0.01))
    assert (calls, transfers, gaps) == pytest.approx((1.0, 1.0, 1.0), abs=1e-6)


def test_right_answers_are_left_as_it_is() -> None:
    result = adapt({"as configured": steps()}, steps().step_us(ONES), BATCHES)
    assert result.weight == UNLABELED
    assert result.factors == tuple(ONES)
    assert result.left_out_error == pytest.approx(0.0)


def test_labels_choose_the_graphs_they_speak_for() -> None:
    """Kernels twice as long are far outside of what a factor usually is; the other graphs have them."""
    labels = np.array([300.0, 400.0, 800.0, 1600.0])
    result = adapt({"as configured": steps(), "again": steps(kernel_us=200.0)}, labels, BATCHES)
    assert result.hypothesis == "again"
    assert result.factors == tuple(ONES)


def test_labels_that_no_factor_explains_are_not_followed() -> None:
    """The one label of the host is three times too long, the others are right."""
    labels = np.array([300.0, 300.0, 400.0, 800.0]) * np.array([3.0, 1.0, 1.0, 1.0])
    weak = fit_factors(steps(), labels, 0.001)
    assert weak[0] > 1.3  # it would follow
    assert adapt({"as configured": steps()}, labels, BATCHES).weight == UNLABELED


def test_left_out_by_hand() -> None:
    """Unlabeled, each label is missed by log 2."""
    assert left_out_error(steps(), 2 * steps().step_us(ONES), BATCHES, UNLABELED) == pytest.approx(np.log(2))


@settings(deadline=None)
@given(st.floats(0.5, 2.0), st.floats(0.5, 2.0), st.floats(0.03, 0.3))
def test_a_stronger_prior_moves_less(host: float, kernels: float, weight: float) -> None:
    labels = steps().step_us(np.array([host, 1.0, kernels, 1.0, 1.0]))
    spread = np.array([part.spread for part in PARTS])
    near, far = (np.abs(np.log(fit_factors(steps(), labels, w)) / spread).max() for w in (10 * weight, weight))
    assert near <= far + 1e-3


def test_refusals() -> None:
    with pytest.raises(InputError, match="left out"):
        adapt({"as configured": steps()}, np.ones(4), np.zeros(4))
    with pytest.raises(InputError, match="measured_us"):
        adapt({"as configured": steps()}, np.array([1.0, np.nan, 1.0, 1.0]), BATCHES)
