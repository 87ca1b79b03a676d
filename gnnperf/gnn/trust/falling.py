"""The best sequence that never rises: one choice per row, by dynamic programming over rows."""

from __future__ import annotations

import numpy as np


def falling(errors: np.ndarray) -> list[int]:
    """Columns, none larger than the one before, with the least sum over rows; of equals the largest.

    Args:
        errors: [num_rows, num_columns].
    """
    total, came_from = errors[0], []
    for row in errors[1:]:
        best = len(total) - 1 - _running_argmin(total[::-1])[::-1]  # [num_columns] of this column and larger ones
        came_from.append(best)
        total = row + total[best]
    found = [len(total) - 1 - int(total[::-1].argmin())]
    for best in reversed(came_from):
        found.append(int(best[found[-1]]))
    return found[::-1]


def _running_argmin(values: np.ndarray) -> np.ndarray:
    """[n] -> [n] place of the least value so far, the first of equals."""
    least = np.minimum.accumulate(values)
    new = np.concatenate([[True], values[1:] < least[:-1]])
    found: np.ndarray = np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))
    return found
