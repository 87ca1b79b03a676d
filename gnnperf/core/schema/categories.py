"""Columns of texts as categories: what pandas takes long for, on the many small columns of a graph."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

FEW = 1000  # texts of a dtype that is kept: steps of one program have the same ones


def categorical(codes: np.ndarray, texts: Sequence[str]) -> "pd.Categorical[Any]":
    """[n] from codes (-1 null) and the text of each code; texts differ."""
    make = _kept_dtype if len(texts) <= FEW else _dtype
    return pd.Categorical.from_codes(codes, dtype=make(tuple(texts)), validate=False)


def in_use(codes: np.ndarray, texts: Sequence[str]) -> "pd.Categorical[Any]":
    """[n] from codes (-1 null) of `texts`, without the texts that no row has."""
    used = np.bincount(codes.astype(np.intp) + 1, minlength=len(texts) + 1)[1:] > 0
    number = np.append(np.cumsum(used) - 1, -1)
    return categorical(number[codes], [text for text, is_used in zip(texts, used.tolist(), strict=True) if is_used])


def codes_of(column: pd.Series) -> np.ndarray:
    """[n] codes of a categorical column, -1 null; `column.cat` makes a series of them."""
    array: Any = column.array
    return np.asarray(array.codes)


def categories_of(column: pd.Series) -> list[str]:
    """The text of each code; a loop over the categories takes longer."""
    array: Any = column.array
    return list(array.categories.to_numpy(dtype=object))


def merged(columns: Sequence[pd.Series]) -> "pd.Categorical[Any]":
    """All rows of categorical columns, below each other."""
    known = [categories_of(column) for column in columns]
    number = {text: code for code, text in enumerate(dict.fromkeys(text for texts in known for text in texts))}
    dtype = np.min_scalar_type(-1 - len(number))
    codes = [np.array([*map(number.__getitem__, texts), -1], dtype)[codes_of(column)]
             for texts, column in zip(known, columns, strict=True)]  # fmt: skip
    return categorical(np.concatenate(codes), list(number))


def _dtype(texts: tuple[str, ...]) -> pd.CategoricalDtype:
    return pd.CategoricalDtype(pd.Index(texts, dtype="str"))


_kept_dtype = lru_cache(maxsize=256)(_dtype)
