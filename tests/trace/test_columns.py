"""Columns: exact times, honest unknowns."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.trace.columns import (
    MISSING_NS,
    Codes,
    coded,
    float_column,
    int_column,
    json_column,
    lane_column,
    ns_column,
    thread_column,
)
from gnnperf.trace.kineto import LARGEST_EXACT_US


@given(st.lists(st.integers(0, int(LARGEST_EXACT_US) * 1000), min_size=1, max_size=20))
def test_float_microseconds_keep_their_nanoseconds(times_ns: list[int]) -> None:
    text = [f"{t // 1000}.{t % 1000:03d}" for t in times_ns]
    assert ns_column([float(t) for t in text]).tolist() == times_ns


@given(st.lists(st.integers(0, 2 * 10**18), min_size=1, max_size=20))
def test_decimal_microseconds_keep_their_nanoseconds_at_any_size(times_ns: list[int]) -> None:
    assert ns_column([Decimal(t) / 1000 for t in times_ns]).tolist() == times_ns


def test_integer_microseconds_of_today_are_exact() -> None:
    assert ns_column([1661203462598738, 1661203462598739]).tolist() == [1661203462598738000, 1661203462598739000]


def test_a_missing_time_is_marked() -> None:
    assert ns_column([1.5, None]).tolist() == [1500, MISSING_NS]
    assert ns_column([Decimal("1.5"), None]).tolist() == [1500, MISSING_NS]


def test_unknown_integers_are_minus_one() -> None:
    assert int_column([3, None, 2**64 - 1]).tolist() == [3, -1, -1]
    assert np.isnan(float_column([None])[0])


def test_lanes_are_numbers_however_they_are_written() -> None:
    assert lane_column(["stream 7", "stream 7", 12]).tolist() == [7, 7, 12]
    assert thread_column([-1029147072]).tolist() == [3265820224]
    named = lane_column(["main", "loader", "main"])
    assert named[0] == named[2] != named[1] and named.min() > 2**40


@given(st.lists(st.one_of(st.none(), st.text(max_size=3))))
def test_codes_give_the_values_back(values: list[str | None]) -> None:
    codes, uniques = coded(values)
    assert [None if c < 0 else uniques[c] for c in codes] == values


def test_codes_go_on_over_several_lists() -> None:
    codes = Codes()
    assert codes.of(["a", "b"]).tolist() == [0, 1]
    assert codes.of(["b", "c", None]).tolist() == [1, 2, -1]
    assert codes.uniques() == ["a", "b", "c"]


def test_equal_lists_with_other_white_space_are_one_category() -> None:
    texts = [b"[[8, 4]]", b"[[8,4]]", b"[]", b"", b"[" + b"1," * 40_000 + b"1]"]
    column = json_column(np.array([0, 1, 2, 3, 4, -1], dtype=np.int32), texts)
    assert list(column.categories) == ["[[8,4]]"]
    assert column.codes.tolist() == [0, 0, -1, -1, -1, -1]
