"""Stretches of time as sets: unions, and what lies outside others. All spans are [n, 2] (start, end) in us."""

from __future__ import annotations

import numpy as np


def union(spans: np.ndarray) -> np.ndarray:
    """[m, 2] the same time without overlaps, ascending; empty spans are left out."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return np.zeros((0, 2))
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    opens = np.r_[True, spans[1:, 0] > reached[:-1]]
    closes = np.r_[opens[1:], True]
    return np.column_stack([spans[opens, 0], reached[closes]])


def length_us(spans: np.ndarray) -> float:
    """How much time they cover, overlaps once."""
    whole = union(spans)
    return float((whole[:, 1] - whole[:, 0]).sum())


def outside_us(spans: np.ndarray, others: np.ndarray) -> float:
    """How much of the time of `spans` is not covered by `others`."""
    return length_us(np.concatenate([spans, others])) - length_us(others)
