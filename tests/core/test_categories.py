"""Columns of texts: codes and texts, and rows of several columns below each other."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core import schema
from gnnperf.core.schema import categories

COLUMNS = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", None])), min_size=1, max_size=4)


def column(values: list[str | None]) -> pd.Series:
    texts = list(dict.fromkeys(value for value in values if value is not None))
    codes = np.array([-1 if value is None else texts.index(value) for value in values], dtype=np.int8)
    return pd.Series(schema.categorical(codes, texts))


@given(COLUMNS)
def test_rows_of_columns_keep_their_texts_below_each_other(parts: list[list[str | None]]) -> None:
    made = pd.Series(schema.merged([column(part) for part in parts]))
    decoded = [None if code < 0 else schema.categories_of(made)[code] for code in schema.codes_of(made)]
    assert decoded == [value for part in parts for value in part] and str(made.cat.categories.dtype) == "str"
    assert schema.categories_of(made) == list(dict.fromkeys(v for part in parts for v in part if v is not None))


@given(st.lists(st.sampled_from(["a", "b", "c", None])))
def test_texts_that_no_row_has_are_left_out_and_the_others_keep_their_order(values: list[str | None]) -> None:
    codes = np.array([-1 if value is None else "cba".index(value) for value in values], dtype=np.int8)
    made = pd.Series(schema.in_use(codes, ["c", "b", "a"]))
    assert [None if code < 0 else schema.categories_of(made)[code] for code in schema.codes_of(made)] == values
    assert schema.categories_of(made) == sorted({v for v in values if v is not None}, reverse=True)


def test_more_than_few_texts_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(categories, "FEW", 1)
    few, many = schema.categorical(np.array([0]), ["x"]), schema.categorical(np.array([1]), ["x", "y"])
    assert few.dtype is schema.categorical(np.array([0]), ["x"]).dtype
    assert many.dtype is not schema.categorical(np.array([1]), ["x", "y"]).dtype and many.tolist() == ["y"]
