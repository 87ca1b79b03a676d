"""Sequences that never rise, against all there are."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.gnn.trust.transferability import falling


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=4))
def test_shares_that_fall_are_the_best_of_all_that_do(rows: list[list[int]]) -> None:
    errors = np.array(rows, float)
    result = falling(errors)
    fall = [way for way in product(range(3), repeat=len(rows)) if list(way) == sorted(way, reverse=True)]
    assert result in [list(way) for way in fall]
    least = min(sum(row[place] for row, place in zip(rows, way, strict=True)) for way in fall)
    assert sum(row[place] for row, place in zip(rows, result, strict=True)) == least


def test_of_equals_the_largest_is_taken() -> None:
    assert falling(np.array([[1.0, 1.0], [2.0, 2.0]])) == [1, 1]
