"""Embedding bags: hand-computed counts and times, and what must hold whatever the prices are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.embedding.model import LookupCosts, Lookups, lookup_costs, lookup_us

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
