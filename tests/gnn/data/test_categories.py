"""Words of a column, once each."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gnnperf.gnn.data.floors import NOTHING, of_each, texts_of, words_of

WORDS = ["b", None, "a", "b"]


@pytest.mark.parametrize("dtype", ["object", "category", "str"])
def test_words_and_which_one_a_row_has(dtype: str) -> None:
    column = pd.Series(WORDS, dtype=dtype)
    words, place = words_of(column)
    assert sorted(words) == [NOTHING, "a", "b"]
    assert words[place].tolist() == texts_of(column).tolist() == ["b", NOTHING, "a", "b"]


def test_a_value_is_requested_once_per_word() -> None:
    requested: list[str] = []

    def value(word: str) -> float:
        requested.append(word)
        return float(len(word))

    assert of_each(pd.Series(WORDS, dtype="category"), value).tolist() == [1.0, 0.0, 1.0, 1.0]
    assert sorted(requested) == [NOTHING, "a", "b"]


def test_no_rows_are_fine() -> None:
    words, place = words_of(pd.Series([], dtype=object))
    assert words.tolist() == [NOTHING]
    assert place.shape == (0,)
    assert np.array_equal(texts_of(pd.Series([], dtype=object)), np.empty(0, dtype=object))
