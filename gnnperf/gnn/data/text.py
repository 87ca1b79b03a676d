"""Op names as numbers: pieces of the name, hashed, so that an op nobody has seen lands near its kin.

aten::convolution_backward -> aten, convolution, backward, and every three letters in a row
"""

from __future__ import annotations

import re
import zlib
from functools import cache

import numpy as np
import pandas as pd

from gnnperf.core import NUM_TEXT_FEATURES

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_WORD_WEIGHT = 2.0  # a whole word says more than three of its letters


def text_numbers(names: pd.Series) -> np.ndarray:
    """Hashed pieces of op names (feature hashing, Weinberger et al. 2009): [n, NUM_TEXT_FEATURES] float32.

    Rows have length 1; a name without letters, or none at all, is 0.
    """
    codes, distinct = pd.factorize(names, use_na_sentinel=True)
    table = np.stack([*(_hashed(str(name)) for name in distinct), _hashed("")])  # [num_distinct + 1, features]
    return table[codes]  # the last row for null


@cache
def _hashed(name: str) -> np.ndarray:
    """[NUM_TEXT_FEATURES] float32; the same on every machine (CRC-32, not Python's salted hash)."""
    found = np.zeros(NUM_TEXT_FEATURES)
    for piece, weight in _pieces(name):
        code = zlib.crc32(piece.encode())
        found[(code >> 1) % NUM_TEXT_FEATURES] += weight if code & 1 else -weight
    length = float(np.linalg.norm(found))
    return (found / length if length else found).astype(np.float32)


def _pieces(name: str) -> list[tuple[str, float]]:
    words = [word.lower() for word in _WORDS.findall(name)]
    threes = [padded[i : i + 3] for word in words for padded in (f"<{word}>",) for i in range(len(padded) - 2)]
    return [*((word, _WORD_WEIGHT) for word in words), *((three, 1.0) for three in threes)]
