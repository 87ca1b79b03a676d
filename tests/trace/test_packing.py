"""Packed events: what a step repeats looks the same each time, and everything comes back exactly."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core import schema
from gnnperf.core.errors import InputError
from gnnperf.core.schema import EventKind
from gnnperf.trace.columns import Codes
from gnnperf.trace.packing import COUNTERS, LANE, REFERENCES, TEXTS, Columns, pack, packed_dtypes, unpack
from tests.traces import annotation, op, trace

BIG = st.integers(-(2**62), 2**62 - 1)


def _packed(events: pd.DataFrame) -> tuple[Columns, dict[str, list[str]]]:
    codes = {name: Codes() for name in TEXTS}
    columns = pack(events, codes)
    return columns, {name: result.uniques() for name, result in codes.items()}


def test_gaps_are_stretches_in_which_nothing_begins_or_ends() -> None:
    """a 0..100 us with b 10..30 and c 45..90 in it; d 5..50 on another thread does not cut them."""
    events = trace(op("a", 0, 100), op("b", 10, 30), op("c", 45, 90), op("d", 5, 50, thread=9)).events
    columns, _ = _packed(events)
    names = [events["name"].iloc[i] for i in np.lexsort([events[lane] for lane in reversed(LANE)])]
    assert names == ["a", "b", "c", "d"]
    assert columns["num_inside"].tolist() == [2, 0, 0, 0]
    assert columns["start_gap_ns"].tolist()[:3] == [0, 10_000, 15_000]
    assert columns["end_gap_ns"].tolist() == [10_000, 20_000, 45_000, 45_000]
    assert not columns["row_shift"].any()


def test_a_step_that_repeats_packs_to_the_same_numbers() -> None:
    steps = [
        event
        for at in (0, 1000)
        for event in (
            annotation(f"ProfilerStep#{at}", at, at + 500, thread=7),
            op("aten::add", at + 10, at + 90, thread=7, sequence=at // 10, external_id=at + 1),
            op("AddBackward0", at + 100, at + 190, thread=7, sequence=at // 10, forward="aten::add"),
        )
    ]
    events = trace(*steps).events
    events["forward_event"] = [-1, -1, 1, -1, -1, 4]
    columns, texts = _packed(events)
    assert texts["name"] == ["ProfilerStep#0", "aten::add", "AddBackward0", "ProfilerStep#1000"]
    for name in ("start_gap_ns", "end_gap_ns", "num_inside", "forward_event_back", "op_event_back"):
        assert columns[name][1:3].tolist() == columns[name][4:6].tolist(), name
    assert columns["forward_event_back"].tolist() == [0, 0, 1, 0, 0, 1]
    assert columns["sequence_step"].tolist() == [0, -1, -1, 0, 100, -1]  # 0 is "none": zero and below are one lower


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Any table at all: unsorted, overlapping, extreme numbers, references to anywhere."""
    size = draw(st.integers(1, 12))

    def ints(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=size, max_size=size))

    columns: dict[str, object] = {}
    for column in schema.EVENT_COLUMNS:
        if column.name == "event_id":
            columns[column.name] = np.arange(size)
        elif column.name in REFERENCES:
            columns[column.name] = ints(st.integers(-1, size - 1))
        elif column.name in COUNTERS:
            columns[column.name] = ints(st.one_of(st.just(-1), BIG))
        elif column.name in (*LANE, "duration_ns"):
            columns[column.name] = ints(st.integers(-1, 3))
        elif column.dtype == "category":
            columns[column.name] = pd.Categorical(draw(st.lists(st.sampled_from(["x", "", "é", None]),
                                                                min_size=size, max_size=size)))  # fmt: skip
        elif column.dtype == "float64":
            columns[column.name] = draw(st.lists(st.floats(), min_size=size, max_size=size))
        else:
            columns[column.name] = ints(st.integers(-5, 5) if column.dtype == "int32" else BIG)
    frame = pd.DataFrame(columns)
    return frame.astype({c.name: c.dtype for c in schema.EVENT_COLUMNS if c.dtype != "category"})


@given(tables())
def test_every_table_comes_back_exactly(events: pd.DataFrame) -> None:
    columns, texts = _packed(events)
    assert {name: str(values.dtype) for name, values in columns.items()} == packed_dtypes()
    again = unpack(columns, texts, "test")
    for column in schema.EVENT_COLUMNS:
        before, after = events[column.name], again[column.name]
        if column.dtype == "category":
            assert [t if isinstance(t, str) else None for t in before] == [
                t if isinstance(t, str) else None for t in after
            ]
        else:
            np.testing.assert_array_equal(before.to_numpy(), after.to_numpy())
            assert str(after.dtype) == column.dtype


def test_categories_are_those_in_use_in_order_of_first_appearance() -> None:
    events = trace(op("b", 0, 1), op("a", 2, 3), op("b", 4, 5)).events
    codes = {name: Codes() for name in TEXTS}
    codes["name"].of(["of another rank", "a"])
    columns = pack(events, codes)
    again = unpack(columns, {name: result.uniques() for name, result in codes.items()}, "test")
    assert again["name"].cat.categories.tolist() == ["b", "a"]
    assert again["kind"].tolist() == [str(EventKind.CPU_OP)] * 3


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("num_inside", 3, "'num_inside' does not fit"),
        ("num_inside", -1, "'num_inside' does not fit"),
        ("row_shift", 1, "'row_shift' does not fit"),
        ("row_shift", 2**62, "'row_shift' does not fit"),
        ("op_event_back", 4, "'op_event' names a row that is not there"),
        ("launch_event_back", -(2**62), "'launch_event' names a row that is not there"),
        ("name", 9, "'name' does not fit"),
        ("kind", -2, "'kind' does not fit"),
    ],
)
def test_damaged_columns_are_refused(column: str, value: int, message: str) -> None:
    columns, texts = _packed(trace(op("a", 0, 9), op("b", 1, 2), op("c", 3, 4)).events)
    columns[column] = columns[column].copy()
    columns[column][0] = value
    with pytest.raises(InputError, match=message):
        unpack(columns, texts, "test")
