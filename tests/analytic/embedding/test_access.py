"""How lookups fall on rows, and what a cache keeps: small tables by hand, large ones by drawing lookups."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.embedding.model import power_access, zipf_access


def one(value: float) -> np.ndarray:
    return np.array([value])


def drawn_misses(rows: int, skew: float, lookups: int, cache_rows: int) -> tuple[int, int]:
    """(different rows, misses of a least-recently-used cache that was empty) of lookups that were really drawn."""
    cache: OrderedDict[int, None] = OrderedDict()
    misses, seen = 0, set()
    for row in np.floor(rows * np.random.default_rng(0).random(lookups) ** skew).astype(int).tolist():
        seen.add(row)
        misses += row not in cache
        cache[row] = None
        cache.move_to_end(row)
        if len(cache) > cache_rows:
            cache.popitem(last=False)
    return len(seen), misses


def test_two_rows_by_hand() -> None:
    access = power_access(one(2.0), one(1.0))
    assert (access.rows * access.probability).sum() == pytest.approx(1.0)
    assert access.unique(one(2.0)) == pytest.approx([1.5])  # the second lookup finds the first one's row half the time
    skewed = power_access(one(2.0), one(2.0))  # the first row gets sqrt(1/2) of the lookups
    assert skewed.unique(one(1.0)) == pytest.approx([1.0])
    assert skewed.probability[0, 0] == pytest.approx(np.sqrt(0.5))


@pytest.mark.parametrize(("skew", "cache_rows"), [(1.0, 500), (2.0, 500), (4.0, 500), (4.0, 50)])
def test_a_large_table_is_what_drawing_states(skew: float, cache_rows: int) -> None:
    different, misses = drawn_misses(5000, skew, 20000, cache_rows)
    access = power_access(one(5000.0), one(skew))
    assert access.unique(one(20000.0)) == pytest.approx([different], rel=0.02)
    assert access.missed(one(20000.0), one(float(cache_rows))) == pytest.approx([misses], rel=0.03)


def test_a_cache_of_all_rows_hits_always_and_an_empty_one_never() -> None:
    access = power_access(one(1000.0), one(1.0))
    assert access.hit_share(np.array([1000.0])) == pytest.approx([1.0])
    assert access.hit_share(one(100.0)) == pytest.approx([0.1], rel=0.06)  # uniform: the share that fits
    assert access.missed(one(50.0), one(1000.0)) == pytest.approx(access.unique(one(50.0)))


def test_zipf_is_uniform_without_an_exponent() -> None:
    flat, steep = zipf_access(one(1000.0), one(0.0)), zipf_access(one(1000.0), one(1.0))
    assert flat.unique(one(500.0)) == pytest.approx(power_access(one(1000.0), one(1.0)).unique(one(500.0)))
    assert steep.unique(one(500.0)) < flat.unique(one(500.0))


@given(st.integers(1, 10**7), st.floats(1.0, 8.0), st.floats(1.0, 8.0), st.integers(1, 10**5), st.integers(1, 10**6))
def test_more_skew_never_misses_more(rows: int, first: float, second: float, lookups: int, cache_rows: int) -> None:
    access = power_access(np.full(2, float(rows)), np.sort(np.array([first, second])))
    less, more = access.missed(np.full(2, float(lookups)), np.full(2, float(cache_rows)))
    assert more <= less * (1 + 1e-6) + 1e-6


@given(st.integers(1, 10**7), st.floats(1.0, 8.0), st.integers(1, 10**5), st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_larger_cache_never_misses_more(rows: int, skew: float, lookups: int, one_size: int, other: int) -> None:
    access = power_access(np.full(2, float(rows)), np.full(2, skew))
    small, large = access.missed(np.full(2, float(lookups)), np.sort(np.array([one_size, other], float)))
    assert large <= small * (1 + 1e-6) + 1e-6
