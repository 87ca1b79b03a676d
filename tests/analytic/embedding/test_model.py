"""Embedding bags: hand-computed counts and times, what holds whatever the prices are; how lookups fall on rows."""

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.embedding.calls import counted_access
from gnnperf.analytic.embedding.model import LookupCosts, Lookups, lookup_costs, lookup_us, power_access, zipf_access
from gnnperf.graph.execution_graph import lookups_held

COSTS = LookupCosts(
    call=10.0, element=0.1, near_line=0.5, last_line=16.0, near_bytes=2**10, last_bytes=2**20, line_bytes=64
)  # a quarter of a us per byte


def call(rows: float = 1e6, dim: float = 32, lookups: float = 100, bags: float = 10, skew: float = 1.0,
         tables: float = 1, warm: bool = False) -> Lookups:  # fmt: skip
    r, d, n, b, s, t = (np.array([float(v)]) for v in (rows, dim, lookups, bags, skew, tables))
    return Lookups(r, d, n, b, s, t, warm=np.array([warm]))


def test_every_row_of_a_huge_cold_table_comes_from_memory() -> None:
    # 100 different rows of 128 bytes, two lines each; the near cache holds 8 of them, the last-level cache all
    expected = 10 + 100 * (8 * 0.25 + 32 * 0.1) + 10 * 128 * 0.25 + 200 * 0.5 + 200 * 16
    assert lookup_us(call(), COSTS) == pytest.approx([expected], rel=1e-3)


def test_a_warm_small_table_costs_its_instructions() -> None:
    small = call(rows=4, dim=16, lookups=8, bags=1, warm=True)  # 256 bytes of rows, 64 of results, 64 of indices
    assert lookup_us(small, COSTS) == pytest.approx([10 + 8 * (2 + 1.6) + 64 * 0.25], rel=0.01)
    crowded = replace(small, tables=np.array([1e4]))  # as many tables push each other out
    assert lookup_us(crowded, COSTS) > lookup_us(small, COSTS)


def test_a_dense_gradient_costs_the_whole_table() -> None:
    more = lookup_us(call(), COSTS, dense_backward=True) - lookup_us(call(), COSTS)
    assert more == pytest.approx([1e6 * (128 + 8) * 0.25], rel=1e-6)


def test_a_device_without_measurements_moves_its_lines_at_its_bandwidth() -> None:
    # 1e5 different rows of 128 bytes, 8 bytes of index each, 128 bytes of result for every tenth: at 0.5e12 bytes/s,
    # the rows also through the last-level cache at twice that; an addition for each element at 1e12 a second
    costs = lookup_costs(DEVICE, CONSTANTS)
    result = lookup_us(call(rows=1e9, lookups=1e5, bags=1e4), costs)
    moved_us = (1e5 * (128 + 8) + 1e4 * 128) / 0.5e6 + 1e5 * 128 / 1e6
    assert result == pytest.approx([2.0 + moved_us + 1e5 * 32 / 1e6], rel=1e-3)
    faster = replace(DEVICE, memory_bandwidth_bytes_per_s=2e12)
    assert lookup_us(call(lookups=1e5), lookup_costs(faster, CONSTANTS)) < lookup_us(call(lookups=1e5), costs)


SIZES = {"rows": st.integers(1, 10**7), "dim": st.integers(1, 256), "lookups": st.integers(1, 10**5),
         "bags": st.integers(1, 10**4), "tables": st.integers(1, 8), "warm": st.booleans()}  # fmt: skip


@given(st.fixed_dictionaries(SIZES), st.floats(1.0, 8.0), st.floats(1.0, 8.0), st.booleans())
def test_more_skew_is_never_slower(sizes: dict[str, Any], first: float, second: float, backward: bool) -> None:
    mild, hot = sorted((first, second))
    slow, fast = (lookup_us(call(skew=s, **sizes), COSTS, backward)[0] for s in (mild, hot))
    assert fast <= slow * (1 + 1e-6)


@given(st.fixed_dictionaries(SIZES), st.integers(1, 10**5), st.booleans())
def test_more_lookups_are_never_faster(sizes: dict[str, Any], more: int, backward: bool) -> None:
    few = lookup_us(call(**sizes), COSTS, backward)[0]
    many = lookup_us(call(**{**sizes, "lookups": sizes["lookups"] + more}), COSTS, backward)[0]
    assert few <= many * (1 + 1e-6)


def one(value: float) -> np.ndarray:
    return np.array([value])


def drawn(rows: int, skew: float, lookups: int, seed: int) -> np.ndarray:
    """[lookups] rows."""
    result: np.ndarray = np.floor(rows * np.random.default_rng(seed).random(lookups) ** skew).astype(int)
    return result


def histogram(indices: np.ndarray) -> np.ndarray:
    """[bins] rows by the power of two, rounded up, of how often they were requested."""
    counts = np.unique(indices, return_counts=True)[1]
    return np.bincount(np.ceil(np.log2(counts)).astype(int)).astype(float)


def least_recently_used(indices: np.ndarray, cache_rows: int) -> int:
    """Misses of a cache that was empty."""
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for row in indices.tolist():
        misses += row not in cache
        cache[row] = None
        cache.move_to_end(row)
        if len(cache) > cache_rows:
            cache.popitem(last=False)
    return misses


def test_two_rows_by_hand() -> None:
    access = power_access(one(2.0), one(1.0))
    assert (access.rows * access.probability).sum() == pytest.approx(1.0)
    assert access.unique(one(2.0)) == pytest.approx([1.5])  # the second lookup finds the first one's row half the time
    skewed = power_access(one(2.0), one(2.0))  # the first row gets sqrt(1/2) of the lookups
    assert skewed.unique(one(1.0)) == pytest.approx([1.0])
    assert skewed.probability[0, 0] == pytest.approx(np.sqrt(0.5))


@pytest.mark.parametrize(("skew", "cache_rows"), [(1.0, 500), (2.0, 500), (4.0, 500), (4.0, 50)])
def test_a_large_table_is_what_drawing_states(skew: float, cache_rows: int) -> None:
    rows = drawn(5000, skew, 20000, seed=0)
    different, misses = len(np.unique(rows)), least_recently_used(rows, cache_rows)
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


@pytest.mark.parametrize(("rows", "skew", "lookups"), [(5000, 1.0, 20000), (5000, 4.0, 20000), (100_000, 4.0, 20000)])
@pytest.mark.parametrize("cache_rows", [500, 3000])
def test_counts_of_one_batch_tell_the_misses_of_another(rows: int, skew: float, lookups: int, cache_rows: int) -> None:
    access = counted_access(rows, histogram(drawn(rows, skew, lookups, seed=0)), lookups)
    misses = least_recently_used(drawn(rows, skew, lookups, seed=1), cache_rows)
    assert access.missed(one(lookups), one(cache_rows)) == pytest.approx([misses], rel=0.06)
    uniform = power_access(one(rows), one(1.0)).missed(one(lookups), one(cache_rows))[0]
    assert skew == 1.0 or uniform > 1.15 * misses  # what was assumed before anyone counted


def test_as_many_lookups_find_as_many_different_rows_as_were_counted() -> None:
    counts = histogram(drawn(100_000, 4.0, 4096, seed=0))
    access = counted_access(100_000, counts, 4096)
    assert access.unique(one(4096)) == pytest.approx([counts.sum()], rel=0.03)
    assert (access.rows * access.probability).sum() == pytest.approx(1.0)
    assert access.rows.sum() == pytest.approx(100_000)


def test_rows_requested_for_once_by_chance_are_not_hot() -> None:
    # 4,096 of a million rows, each once: another batch asks for other rows
    access = counted_access(1e6, np.array([4080.0, 8.0]), 4096)
    assert access.unique(one(4 * 4096)) > 3.5 * 4088


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any), st.integers(1, 10**5), st.integers(1, 10**5))
def test_a_larger_cache_never_misses_more_than_there_are_lookups(counts: list[int], first: int, second: int) -> None:
    result = np.array(counts, float)
    lookups = lookups_held(counts)[1]
    access = counted_access(result.sum() + 1000.0, result, lookups)
    small, large = sorted((first, second))
    fewer, more = (access.missed(one(lookups), one(size))[0] for size in (large, small))
    assert 0 <= fewer <= more * (1 + 1e-6) + 1e-6 <= lookups * (1 + 1e-5) + 1e-5
