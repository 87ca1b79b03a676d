"""Embedding bags and batched lookups: counts and times by hand, what holds whatever the prices are, rows hit."""

import json
from collections import OrderedDict
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.embedding.batched_calls import LOOK_UP, UPDATE, BatchedTable, batched_work, busy_columns, stated
from gnnperf.analytic.embedding.calls import counted_access
from gnnperf.analytic.embedding.model import LookupCosts, Lookups, lookup_costs, lookup_us, power_access, zipf_access
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import cache_bytes_per_s, sustained_bytes_per_s
from gnnperf.core import OpFamily
from gnnperf.graph import lookups_held, op_cost
from gnnperf.hardware import load_device

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


A100 = load_device("a100_sxm_80gb")
TABLE = BatchedTable(rows=1_000_000, dim=128, lookups=8192, bags=2048)


def _us(name: str, *tables: BatchedTable) -> float:
    flops, moved = batched_work(tables, name)
    call = KernelCall(name, stated(tables), "float32", OpFamily.EMBEDDING, flops, moved)
    result = kernel_times([call], A100, 4.0)
    assert result.by_form[0]
    return float(result.latency_us[0])


def test_tables_of_a_call_share_one_launch() -> None:
    other = BatchedTable(5000, 32, 100_000, 1000, 3000)
    launch = A100.launch_floor_us
    together = _us(LOOK_UP, TABLE, other)
    assert together == pytest.approx(_us(LOOK_UP, TABLE) + _us(LOOK_UP, other) - launch)


def test_calls_that_are_requested_together_have_their_own_predictions() -> None:
    sets = [(TABLE,), (TABLE, BatchedTable(10, 4, 5, 5)), (BatchedTable(10, 4, 5, 5),)]
    calls = [KernelCall(LOOK_UP, stated(s), "float32", OpFamily.EMBEDDING, 1.0, 1.0) for s in sets]
    assert kernel_times(calls, A100, 4.0).latency_us == pytest.approx([_us(LOOK_UP, *s) for s in sets])


def test_one_uniform_table_is_an_embedding_bag() -> None:
    dims = json.dumps([[TABLE.rows, TABLE.dim], [TABLE.lookups], [TABLE.bags]])
    name = "aten::_embedding_bag"
    cost = op_cost(name, dims, json.dumps(["float", "long int", "long int"]), None)
    call = KernelCall(name, dims, "float32", OpFamily.EMBEDDING, cost.flops, cost.bytes)
    assert _us(LOOK_UP, TABLE) == pytest.approx(float(kernel_times([call], A100, 4.0).latency_us[0]))


def test_an_update_by_hand() -> None:
    """Two lookups in a table so large that they are of different rows, no state: sectors of 32 bytes and more."""
    table = BatchedTable(rows=10**9, dim=128, lookups=2, bags=1)
    constants = default_memory_constants()
    dram_us = 1e6 / sustained_bytes_per_s(A100, constants)
    far_bytes = 1 * 512 + 2 * 2 * 512 + 2 * 8  # gradient of the bag, two rows both ways, two indices
    near_us = 2 * 512 * 1e6 / cache_bytes_per_s(A100, constants)
    arithmetic_us = 2 * 128 * 1e6 / A100.flops_per_s["float32"]
    by_hand = 7 * A100.launch_floor_us + far_bytes * dram_us + near_us + arithmetic_us
    assert _us(UPDATE, table) == pytest.approx(by_hand, rel=1e-9)


def test_state_is_read_and_written_by_sectors() -> None:
    table = BatchedTable(10**9, 16, 1000, 1000)
    with_state = BatchedTable(10**9, 16, 1000, 1000, 1000, 4)
    dram_us = 1e6 / sustained_bytes_per_s(A100, default_memory_constants())
    assert _us(UPDATE, with_state) - _us(UPDATE, table) == pytest.approx(2 * 1000 * 32 * dram_us, rel=1e-3)


def test_short_rows_leave_threads_idle() -> None:
    """Half a block's columns take 1.15 / 2 of the time of all of them, a quarter 1.75 / 4, fewer no less than that."""
    columns = busy_columns(np.array([4.0, 32.0, 48.0, 64.0, 128.0, 256.0]))
    assert columns == pytest.approx([56.0, 56.0, (56.0 + 73.6) / 2, 73.6, 128.0, 256.0])
    launch = A100.launch_floor_us
    quarter, half, full = (_us(LOOK_UP, BatchedTable(10**9, dim, 10**6, 10**6)) - launch for dim in (32, 64, 128))
    assert half / full == pytest.approx(1.15 / 2, rel=0.01)
    assert quarter / full == pytest.approx(1.75 / 4, rel=0.02)


def test_hot_rows_are_faster_to_look_up_and_to_update() -> None:
    for name in (LOOK_UP, UPDATE):
        assert _us(name, BatchedTable(10**7, 64, 10**6, 10**5, 8000)) < 0.7 * _us(
            name, BatchedTable(10**7, 64, 10**6, 10**5)
        )


def test_work_counts_every_row_once_per_lookup() -> None:
    table = BatchedTable(100, 8, 30, 10, 1000, 4)
    assert batched_work([table], LOOK_UP) == (240.0, 30 * (8 + 32) + 10 * 32)
    assert batched_work([table], UPDATE) == (240.0, 2 * 30 * (32 + 4) + 30 * 8 + 10 * 32)


@pytest.mark.parametrize("dims", [None, "[]", "[[[5, 4, 3]]]", "[[[0, 4, 3, 1, 1000, 0]]]"])
def test_tables_that_are_not_stated_are_left_to_the_roofline(dims: str | None) -> None:
    call = KernelCall(LOOK_UP, dims, "float32", OpFamily.EMBEDDING, 1.0, 1.0)
    assert not kernel_times([call], A100, 4.0).by_form[0]


TABLES = st.tuples(*(st.integers(1, top) for top in (10**7, 256, 10**6, 10**5, 8000)), st.integers(0, 64))


@settings(max_examples=40, deadline=None)
@given(TABLES, st.sampled_from([1, 2, 3]), st.sampled_from([LOOK_UP, UPDATE]))
def test_more_columns_lookups_or_bags_are_never_faster(sizes: tuple[int, ...], place: int, name: str) -> None:
    less = BatchedTable(*sizes)
    more = BatchedTable(*(n * (2 if i == place else 1) for i, n in enumerate(astuple(less))))
    assert _us(name, more) >= _us(name, less) * (1 - 1e-9)
    assert np.isfinite(_us(name, more))
