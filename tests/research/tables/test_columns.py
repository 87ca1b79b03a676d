from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.record.calibrate import ops_file
from research.tables.columns import COLUMNS, OpTable, completed, grouped, joined, product_columns, shapes_json

SHARED = ("op", "direction", "shapes", "dtypes", "tf32", "flops", "moved_bytes", "cache", "launch_included", "device",
          "latency_us")  # fmt: skip


def test_the_first_columns_are_those_of_the_calibrated_table() -> None:
    assert tuple(COLUMNS)[: len(SHARED)] == SHARED
    assert set(SHARED) <= set(ops_file.COLUMNS)


def test_what_is_not_given_is_unknown() -> None:
    rows = completed({"op": "aten::mm", "m": [1, 2]}, 2)
    assert list(rows) == list(COLUMNS)
    assert rows["k"].isna().all() and rows["direction"].isna().all() and rows["m"].tolist() == [1.0, 2.0]
    assert rows["turns"].tolist() == [1.0, 1.0]
    with pytest.raises(KeyError, match="depth"):
        completed({"depth": [1]}, 1)


def test_counts_of_what_was_left_out_add_up() -> None:
    part = OpTable(completed({"op": "aten::mm"}, 2), {"a: m is 0": 3})
    both = joined([part, part])
    assert len(both.rows) == 4 and both.dropped == {"a: m is 0": 6}
    assert both.rows.index.tolist() == [0, 1, 2, 3]


@given(st.lists(st.tuples(*[st.integers(1, 10**6)] * 3), min_size=1, max_size=5))
def test_shapes_are_written_as_json_does(sizes: list[tuple[int, int, int]]) -> None:
    m, n, k = np.array(sizes).T
    result = shapes_json([[m, k], [k, n], [7]])
    assert result.tolist() == [json.dumps([[a, c], [c, b], [7]]) for a, b, c in sizes]


def test_a_product_by_hand() -> None:
    columns = product_columns("aten::mm", [2], [3], [4], "bfloat16")
    assert columns["flops"] == [48.0] and columns["moved_bytes"] == [2 * (8 + 12 + 6)]


def test_positions_of_every_group_whatever_the_index() -> None:
    rows = pd.DataFrame({"device": ["b", "a", "b"], "op": ["mm", "mm", "mm"]}, index=[7, 7, 9])
    result = [(key, places.tolist()) for key, places in grouped(rows, ("device", "op"))]
    assert result == [(("a", "mm"), [1]), (("b", "mm"), [0, 2])]
