"""How the ranks of a group lie on machines. Ranks fill machines in order.

ranks per machine 4        machine 0    machine 1    machine 2
first 0, stride 1, size 8  x x x x      x x x x      . . . .      2 machines, 4 ranks on each
first 0, stride 4, size 3  x . . .      x . . .      x . . .      3 machines, 1 rank on each
first 3, stride 1, size 2  . . . x      x . . .      . . . .      2 machines
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

UNKNOWN = -1


def progression(ranks: Sequence[int]) -> tuple[int, int]:
    """(lowest rank, distance between neighbors) of a group's ranks; the distance is UNKNOWN where it is uneven."""
    ordered = np.unique(np.asarray(ranks, dtype=np.int64))
    gaps = np.diff(ordered)
    if not len(ordered):
        return UNKNOWN, UNKNOWN
    even = len(gaps) > 0 and bool((gaps == gaps[0]).all())
    return int(ordered[0]), int(gaps[0]) if even else UNKNOWN


def machines_of(size: np.ndarray, first: np.ndarray, stride: np.ndarray, ranks_per_node: int) -> np.ndarray:
    """[n] machines that groups span, at least 1.

    Below a stride of one machine no machine between the first and the last rank is passed over; from there on every
    rank has a machine of its own. Where the ranks are not known, a group fills machines from the first one on.

    Args:
        size: [n] ranks of the group; -1 unknown.
        first: [n] its lowest rank; -1 unknown.
        stride: [n] distance of neighbors; -1 unknown.
        ranks_per_node: of a machine.
    """
    count = np.maximum(size, 1).astype(np.int64)
    known = (first >= 0) & (stride > 0) & (size > 0)
    last = first.astype(np.int64) + stride.astype(np.int64) * (count - 1)  # [n]
    reached = np.where(stride >= ranks_per_node, count, last // ranks_per_node - first // ranks_per_node + 1)
    filled = -(-count // ranks_per_node)
    return np.where(known, reached, filled)


def ranks_per_machine(size: np.ndarray, first: np.ndarray, stride: np.ndarray, ranks_per_node: int) -> np.ndarray:
    """[n] ranks of a group that share a machine, the most there can be where machines hold unequal parts.

    A group inside one machine, or one that fills machines, has all of a machine's places to itself.
    """
    machines = machines_of(size, first, stride, ranks_per_node)
    count = np.maximum(size, 1).astype(np.int64)
    fills = machines == -(-count // ranks_per_node)
    return np.where(fills, ranks_per_node, -(-count // machines))
