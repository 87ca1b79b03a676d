from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.gnn.data.numbers import text_numbers


def ood_distance(a: str, b: str) -> float:
    first, second = text_numbers(pd.Series([a, b]))
    return float(first @ second)


def test_kin_is_nearer_than_strangers() -> None:
    assert ood_distance("aten::convolution", "aten::convolution_backward") > 0.6
    assert (
        ood_distance("aten::convolution", "aten::convolution_backward")
        > ood_distance("aten::convolution", "aten::gelu") + 0.3
    )


@given(st.text(max_size=40))
def test_rows_have_length_one_or_nothing_to_say(name: str) -> None:
    (row,) = text_numbers(pd.Series([name], dtype=object))
    length = float(np.linalg.norm(row))
    assert length == pytest.approx(1, rel=1e-5) or length == 0


def test_null_is_zero_and_rows_keep_their_places() -> None:
    result = text_numbers(pd.Series(["aten::mm", None, "aten::mm", "aten::add"], dtype="category"))
    assert not result[1].any()
    assert (result[0] == result[2]).all()
    assert (result[0] != result[3]).any()
