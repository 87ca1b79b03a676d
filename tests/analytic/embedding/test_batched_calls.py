"""Batched lookups: by hand, against single tables, monotone."""

import json
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.analytic.embedding.batched_calls import LOOK_UP, UPDATE, BatchedTable, batched_work, busy_columns, stated
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import cache_bytes_per_s, sustained_bytes_per_s
from gnnperf.core.schema import OpFamily
from gnnperf.graph.cost.table import op_cost
from gnnperf.hardware import load_device

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


SIZES = st.tuples(*(st.integers(1, top) for top in (10**7, 256, 10**6, 10**5, 8000)), st.integers(0, 64))


@settings(max_examples=40, deadline=None)
@given(SIZES, st.sampled_from([1, 2, 3]), st.sampled_from([LOOK_UP, UPDATE]))
def test_more_columns_lookups_or_bags_are_never_faster(sizes: tuple[int, ...], place: int, name: str) -> None:
    less = BatchedTable(*sizes)
    more = BatchedTable(*(n * (2 if i == place else 1) for i, n in enumerate(astuple(less))))
    assert _us(name, more) >= _us(name, less) * (1 - 1e-9)
    assert np.isfinite(_us(name, more))
