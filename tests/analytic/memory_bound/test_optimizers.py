"""Optimizer steps: bytes and launches by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.memory_bound.calls import (
    ADAM,
    MOMENTUM,
    SGD,
    Implementation,
    bytes_per_parameter,
    launches,
    step_us,
)

LOOP, FOREACH, FUSED = Implementation


@pytest.mark.parametrize(
    ("rule", "implementation", "master", "expected"),
    [
        (SGD, FUSED, False, 4 + 8),  # gradient, parameter read and written
        (ADAM, FUSED, False, 4 + 8 + 16),
        (ADAM, FUSED, True, 4 + 8 + 4 + 16),  # and the model's own parameter written
        (SGD, FOREACH, False, 12),
        (MOMENTUM, LOOP, False, 32),
        (ADAM, FOREACH, False, 72),
    ],
)
def test_bytes(rule: object, implementation: Implementation, master: bool, expected: float) -> None:
    assert bytes_per_parameter(rule, implementation, 4, 4, master) == expected  # type: ignore[arg-type]


def test_half_precision_halves_what_is_not_state() -> None:
    assert bytes_per_parameter(ADAM, FUSED, 2, 2, master=True) == 2 + 8 + 2 + 16


def test_launches() -> None:
    one_million, tensors = np.array([1e6]), np.array([100.0])
    assert launches(ADAM, LOOP, one_million, tensors) == [700.0]
    assert launches(ADAM, FOREACH, one_million, tensors) == [14.0]  # 64 tensors a launch, 7 ops
    assert launches(ADAM, FUSED, one_million, tensors) == [3.0]  # 36 tensors a launch
    assert launches(SGD, FUSED, np.array([2**28 * 1.0]), np.array([1.0])) == [13.0]  # 4,096 chunks, 320 a launch


def test_a_step_streams_its_bytes_or_waits_for_the_host() -> None:
    parameters, tensors = np.array([1e6]), np.array([10.0])
    assert step_us(parameters, tensors, 28.0, np.array([1.0]), DEVICE, CONSTANTS) == pytest.approx([56.0 + 2.0])
    slow_host = step_us(parameters, tensors, 28.0, np.array([1.0]), DEVICE, CONSTANTS, launch_gap_us=100.0)
    assert slow_host == pytest.approx([1000.0])


@given(st.integers(1, 10**10), st.integers(1, 10**10), st.sampled_from(list(Implementation)))
def test_more_parameters_are_never_faster(one: int, other: int, implementation: Implementation) -> None:
    parameters, tensors = np.sort(np.array([one, other], float)), np.full(2, 50.0)
    each = bytes_per_parameter(ADAM, implementation, 4, 4)
    few, many = step_us(
        parameters, tensors, each, launches(ADAM, implementation, parameters, tensors), DEVICE, CONSTANTS
    )
    assert few <= many
