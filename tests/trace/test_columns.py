"""Columns: exact times, honest unknowns."""

from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core import schema
from gnnperf.trace import columns as make
from gnnperf.trace.kineto import LARGEST_EXACT_US


@given(st.lists(st.integers(0, int(LARGEST_EXACT_US) * 1000), min_size=1, max_size=20))
def test_float_microseconds_keep_their_nanoseconds(times_ns: list[int]) -> None:
    text = [f"{t // 1000}.{t % 1000:03d}" for t in times_ns]
    assert make.ns_column([float(t) for t in text]).tolist() == times_ns


@given(st.lists(st.integers(0, 2 * 10**18), min_size=1, max_size=20))
def test_decimal_microseconds_keep_their_nanoseconds_at_any_size(times_ns: list[int]) -> None:
    assert make.ns_column([Decimal(t) / 1000 for t in times_ns]).tolist() == times_ns


def test_integer_microseconds_of_today_are_exact() -> None:
    assert make.ns_column([1661203462598738, 1661203462598739]).tolist() == [1661203462598738000, 1661203462598739000]


@pytest.mark.parametrize("time", [None, 10**400, -(10**400), float("nan"), float("inf"), 1e300, 5 * 10**15])
def test_a_missing_time_and_one_outside_any_are_marked(time: float | None) -> None:
    assert make.ns_column([1.5, time]).tolist() == [1500, make.MISSING_NS]
    assert make.ns_column([Decimal("1.5"), time]).tolist() == [1500, make.MISSING_NS]


@pytest.mark.parametrize("text", ["NaN", "sNaN", "-Infinity", "1e999999999999"])
def test_a_decimal_that_is_no_time_is_missing(text: str) -> None:
    assert make.ns_column([None, Decimal("1.5"), Decimal(text)]).tolist() == [make.MISSING_NS, 1500, make.MISSING_NS]


def test_unknown_integers_are_minus_one() -> None:
    assert make.int_column([3, None, 2**64 - 1]).tolist() == [3, -1, -1]
    assert make.int_column([3, -5, 2**62]).tolist() == [3, -1, -1]
    assert np.isnan(make.float_column([None, -1.0, 1e30, float("inf")])).all()


def test_lanes_are_numbers_however_they_are_written() -> None:
    assert make.lane_column(["stream 7", "stream 7", 12]).tolist() == [7, 7, 12]
    assert make.threads(np.array([-1029147072])).tolist() == [3265820224]
    named = make.lane_column(["main", "loader", "main"])
    assert named[0] == named[2] != named[1] and named.min() > 2**40


def test_lanes_that_are_no_numbers_get_one_each() -> None:
    assert make.lane_column(["stream ²", "٣", 10**400, -(2**40), float("nan")])[2:4].tolist() == [-1, -1]
    assert make.lane_column([2**63 - 1, 7]).tolist() == [-1, 7]


@given(st.lists(st.tuples(*[st.integers(-3, 3)] * 3)))
def test_rows_are_sorted_as_by_all_keys_at_once(keys: list[tuple[int, ...]]) -> None:
    first, second, third = np.array(keys, dtype=np.int64).reshape(-1, 3).T
    order = make.sorted_rows(first, lambda rows: (third[rows], second[rows]))
    assert order.tolist() == np.lexsort((third, second, first)).tolist()


@given(st.lists(st.one_of(st.none(), st.text(max_size=3))))
def test_codes_give_the_values_back(values: list[str | None]) -> None:
    codes, uniques = make.coded(values)
    assert [None if c < 0 else uniques[c] for c in codes] == values


def test_codes_go_on_over_several_lists() -> None:
    codes = make.Codes()
    assert codes.of(["a", "b"]).tolist() == [0, 1]
    assert codes.of(["b", "c", None]).tolist() == [1, 2, -1]
    assert codes.uniques() == ["a", "b", "c"]


def test_launches_that_cannot_be_are_unknown() -> None:
    good = (b"[ 8, 4,1]", b"[32]", b"40", b"0", b"12.5")
    bad = (b'["a"]', b"[1,2,3,4]", b"-1", b"null", b'"x"')
    columns = {name: make.launch_column(np.array([0, 1, -1]), list(texts), name)
               for name, *texts in zip(schema.EVIDENCE_COLUMNS, good, bad, strict=True)}  # fmt: skip
    assert [columns[name][0] for name in schema.EVIDENCE_COLUMNS] == ["[8,4,1]", "[32]", 40, 0, 12]
    for row in (1, 2):
        assert columns["grid"].isna()[row] and columns["block"].isna()[row]
        assert [columns[name][row] for name in ("registers", "shared_bytes", "occupancy_percent")] == [-1, -1, -1]
    assert len(make.launch_column(np.zeros(0, dtype=np.int32), [], "grid")) == 0


def test_equal_lists_with_other_white_space_are_one_category() -> None:
    texts = [b"[[8, 4]]", b"[[8,4]]", b"[]", b"", b"[" + b"1," * 40_000 + b"1]"]
    dropped: Counter[str] = Counter()
    column = make.json_column(np.array([0, 1, 2, 3, 4, 4, -1], dtype=np.int32), texts, "input_dims", dropped)
    assert list(column.categories) == ["[[8,4]]"]
    assert column.codes.tolist() == [0, 0, -1, -1, -1, -1, -1]
    assert dropped == {make.LOST["input_dims"]: 2}
