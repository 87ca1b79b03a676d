"""Stretches of time as sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.whatif.findings.communication import length_us, outside_us, union


def spans(*pairs: tuple[float, float]) -> np.ndarray:
    return np.array(pairs, dtype=float).reshape(-1, 2)


def test_union_by_hand() -> None:
    assert union(spans((5, 7), (0, 2), (1, 3), (3, 4), (9, 9))).tolist() == [[0, 4], [5, 7]]
    assert union(spans((0, 10), (1, 2), (3, 4))).tolist() == [[0, 10]]  # inside
    assert len(union(spans())) == 0


def test_outside_by_hand() -> None:
    assert outside_us(spans((0, 10)), spans((2, 3), (8, 12))) == 7.0
    assert outside_us(spans(), spans((0, 1))) == 0.0


pairs = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), max_size=8)


@given(pairs, pairs)
def test_as_a_set_of_whole_microseconds(one: list[list[int]], other: list[list[int]]) -> None:
    a, b = ({at for low, high in result for at in range(low, high)} for result in (one, other))
    first, second = (np.array(result, dtype=float).reshape(-1, 2) for result in (one, other))
    assert length_us(first) == pytest.approx(len(a))
    assert outside_us(first, second) == pytest.approx(len(a - b))
