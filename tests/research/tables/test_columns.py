import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.memory_bound.constants import EventGap
from gnnperf.record.calibrate import ops_file
from research.tables.columns import COLUMNS, product_columns, shapes_json
from research.tables.observation import between_events_us

SHARED = ("op", "direction", "shapes", "dtypes", "tf32", "flops", "moved_bytes", "cache", "launch_included", "device",
          "latency_us")  # fmt: skip


def test_the_first_columns_are_those_of_the_calibrated_table() -> None:
    assert tuple(COLUMNS)[: len(SHARED)] == SHARED
    assert set(SHARED) <= set(ops_file.COLUMNS)


@given(st.lists(st.tuples(*[st.integers(1, 10**6)] * 3), min_size=1, max_size=5))
def test_shapes_are_written_as_json_does(sizes: list[tuple[int, int, int]]) -> None:
    m, n, k = np.array(sizes).T
    result = shapes_json([[m, k], [k, n], [7]])
    assert result.tolist() == [json.dumps([[a, c], [c, b], [7]]) for a, b, c in sizes]


def test_a_product_by_hand() -> None:
    columns = product_columns("aten::mm", [2], [3], [4], "bfloat16")
    assert columns["flops"] == [48.0] and columns["moved_bytes"] == [2 * (8 + 12 + 6)]


GAP = EventGap(call_us=20.0, issue_share=0.5)


def test_short_kernels_read_the_call_and_long_ones_their_time_after_the_issue() -> None:
    assert between_events_us(np.array([0.0, 2.0, 1000.0]), GAP) == pytest.approx([20.0, 20.0, 1010.0], rel=0.01)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_longer_kernels_never_read_shorter(one: float, other: float) -> None:
    first, second = between_events_us(np.sort(np.array([one, other])), GAP)
    assert 20.0 <= first <= second * (1 + 1e-12)
