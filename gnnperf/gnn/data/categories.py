"""Columns of words, handled per word and not per row: a graph has tens of thousands of nodes and some dozen words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

NOTHING = ""  # the word for null: "has none", not "never seen"


def words_of(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """[num_words] words as text, NOTHING for null the last of them, and [n] which one each row has."""
    found = column.array if isinstance(column.dtype, pd.CategoricalDtype) else pd.Categorical(column.astype(object))
    assert isinstance(found, pd.Categorical)
    words = np.array([*map(str, found.categories), NOTHING], dtype=object)
    return words, np.where(found.codes < 0, len(words) - 1, found.codes.astype(np.int64))


def texts_of(column: pd.Series) -> np.ndarray:
    """[n] object, the words; NOTHING for null."""
    words, place = words_of(column)
    return words[place]


def of_each(column: pd.Series, value: Callable[[str], float]) -> np.ndarray:
    """[n] float64 value of each row's word, asked once per word."""
    words, place = words_of(column)
    return np.array([value(word) for word in words], dtype=np.float64)[place]
