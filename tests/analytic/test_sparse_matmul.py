"""Sparse products: the Sparsity Roofline by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.sparse_matmul import (
    SparseProducts,
    block_index_bytes,
    breakeven_density,
    sparse_us,
    two_four_index_bytes,
    two_four_us,
    unstructured_index_bytes,
)

SIZE = np.array([1000.0])


def square(density: float) -> SparseProducts:
    return SparseProducts(SIZE, SIZE, SIZE, np.array([density]))


def test_what_says_where_the_values_are() -> None:
    assert unstructured_index_bytes(square(0.1)) == pytest.approx([4 * (1e5 + 1001)])
    assert block_index_bytes(square(0.1), 10) == pytest.approx([4 * (1e3 + 101)])
    assert two_four_index_bytes(square(0.5)) == pytest.approx([5e5 / 4])


def test_dense_enough_is_bound_by_compute_and_sparse_enough_by_memory() -> None:
    def us(density: float) -> float:
        calls = square(density)
        return float(sparse_us(calls, unstructured_index_bytes(calls), 4, 1e12, DEVICE, CONSTANTS)[0])

    assert us(0.5) == pytest.approx(2.0 + 1000.0)  # 1e9 FLOPs at 1e12 FLOP/s
    assert us(0.001) == pytest.approx(2.0 + (4 * (1e3 + 2e6) + 4 * 2001) / 0.5e6)


def test_two_of_four_halves_the_time_only_where_units_know_the_pattern() -> None:
    knows = replace(DEVICE, sparse_matrix_speedup=2.0)
    dense_us = 2e9 / 1e12 * 1e6
    assert two_four_us(SIZE, SIZE, SIZE, 2, 1e12, DEVICE, CONSTANTS) == pytest.approx([2.0 + dense_us])
    assert two_four_us(SIZE, SIZE, SIZE, 2, 1e12, knows, CONSTANTS) == pytest.approx([2.0 + dense_us / 2])


def test_below_which_density_sparse_wins() -> None:
    # dense: 2e9 FLOPs at 8e12 FLOP/s = 250 us; sparse at 1e12 FLOP/s: 2,000 us x density
    assert breakeven_density(1000, 1000, 1000, 4, 252.0, 1e12, DEVICE, CONSTANTS) == pytest.approx(0.125, abs=1e-3)
    assert breakeven_density(1000, 1000, 1000, 4, 1.0, 1e12, DEVICE, CONSTANTS) == 0.0


@given(st.floats(0, 1), st.floats(0, 1))
def test_keeping_more_values_is_never_faster(one: float, other: float) -> None:
    calls = SparseProducts(*(np.full(2, 512.0),) * 3, np.sort(np.array([one, other])))
    few, many = sparse_us(calls, unstructured_index_bytes(calls), 4, 1e12, DEVICE, CONSTANTS)
    assert few <= many
