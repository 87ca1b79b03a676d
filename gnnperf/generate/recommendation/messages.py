"""What ranks tell each other about tables: indices to the holders, vectors back, gradients of vectors again.

An uneven exchange is as long as the even one that keeps its busiest rank as busy (as gnnperf.graph.matching has it for
recorded ones): of a rank that holds width w of a total W, each of n ranks with b samples,

    even message = max(n b w, b (W - w) n / (n - 1))          what it sends, what it receives; its own part stays

the larger of both, times the bytes of an element.
"""

from __future__ import annotations

import numpy as np

from gnnperf.generate.recommendation.parts import Part, Travel
from gnnperf.generate.recommendation.plan import FLOAT_BYTES

INDEX_BYTES = 8  # int64
LENGTH_BYTES = 4  # int32, one per sample and table (torchrec's KeyedJaggedTensor)


def even_bytes(width: np.ndarray, samples: int, item_bytes: float) -> np.ndarray:
    """Even message [ranks] bytes of each rank; `width` [ranks] elements per sample that a rank holds."""
    ranks = len(width)
    if ranks == 1:
        return np.zeros(1)
    sent, received = ranks * width, (width.sum() - width) * ranks / (ranks - 1)
    return np.maximum(sent, received) * samples * item_bytes


def widths(parts: tuple[Part, ...], ranks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per sample and rank: vector elements that it sends, indices that it is asked, tables that it is asked about."""
    elements, indices, tables = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
    for part in parts:
        held = list(part.ranks)
        if part.travel is Travel.POOLED:
            elements[held] += part.dim
        if part.travel is not Travel.STAYS:
            indices[held] += part.indices
            tables[held] += 1
    return elements, indices, tables


def summed_width(parts: tuple[Part, ...]) -> int:
    """Columns of tables whose partial sums are reduced on the way."""
    return sum(part.dim for part in parts if part.travel is Travel.SUMMED)


def vector_bytes(parts: tuple[Part, ...], ranks: int, samples: int) -> np.ndarray:
    """Even message [ranks] bytes of the vectors' all-to-all, and of their gradients'."""
    return even_bytes(widths(parts, ranks)[0], samples, FLOAT_BYTES)
