"""Sparse products: the Sparsity Roofline by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.gemm.sparse_calls import sparse_us, two_four_us


def of(value: float) -> np.ndarray:
    return np.array([value])


def test_dense_enough_is_bound_by_compute_and_sparse_enough_by_memory() -> None:
    assert sparse_us(of(1e9), of(4e6), 1e12, DEVICE, CONSTANTS) == pytest.approx([2.0 + 1000.0])
    assert sparse_us(of(2e6), of(8e6), 1e12, DEVICE, CONSTANTS) == pytest.approx([2.0 + 16.0])
    assert sparse_us(of(0.0), of(0.0), 1e12, DEVICE, CONSTANTS) == pytest.approx([2.0])


def test_two_of_four_halves_the_time_only_where_units_know_the_pattern() -> None:
    knows = replace(DEVICE, sparse_matrix_speedup=2.0)
    retained_flops, dense_us = of(1e9), of(2e9 / 1e12 * 1e6)
    result = [two_four_us(retained_flops, of(3e6), dense_us, 1e12, d, CONSTANTS)[0] for d in (DEVICE, knows)]
    assert result == pytest.approx([2.0 + 2000.0, 2.0 + 1000.0])


def test_a_product_that_waits_for_its_tiles_waits_with_the_pattern_too() -> None:
    knows = replace(DEVICE, sparse_matrix_speedup=2.0)
    assert two_four_us(of(1e6), of(3e4), of(100.0), 1e12, knows, CONSTANTS) == pytest.approx([50.0])


@given(st.floats(0, 1), st.floats(0, 1))
def test_keeping_more_values_is_never_faster(one: float, other: float) -> None:
    density = np.sort(np.array([one, other]))
    few, many = sparse_us(2.0 * 512**3 * density, 4 * 512**2 * (2 + 3 * density), 1e12, DEVICE, CONSTANTS)
    assert few <= many
