"""Which ranks have equal roles: color refinement over ranks and what they meet in.

Start: ranks with equal nodes, in order, and equal edges among them have one color. Round by round a rank's color takes
in what it meets: of every transfer the colors of all its ranks and the places of their parts, of every edge to another
rank that rank's color. When no color splits any more, ranks of one color see equal surroundings, however far one looks
(the coarsest equitable partition: Cardon, Crochemore 1982; Grohe 2017, chapter 3).

Whatever gives equal nodes equal latencies then gives equal starts to the nodes of equal ranks: a start is the maximum
over what a node waits for, and that is the same multiset of (color, place). So one rank per color is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.generate.folding.structure import SHARED, Structure, mixed, summed


@dataclass(frozen=True)
class Colors:
    """What cannot be told apart.

    Attributes:
        alone: [num_ranks] class by a rank's own nodes and edges, whoever it meets.
        rank: [num_ranks] class of each rank.
        shared: [num_nodes] uint64 color of transfers and links; 0 for nodes of ranks.
    """

    alone: np.ndarray
    rank: np.ndarray
    shared: np.ndarray


def refine(structure: Structure, stands_for: np.ndarray, machine: np.ndarray) -> Colors:
    """The coarsest classes of ranks.

    Args:
        structure: of the graph.
        stands_for: [num_ranks] ranks that each one stands for already.
        machine: [num_ranks] number of the machine whose ranks stay together because they share something that the graph
            does not hold (processor cores); each its own where nothing is shared.
    """
    alone = mixed(_own(structure), stands_for)
    color = mixed(alone, *_seats(machine))
    count = 0
    while (found := len(np.unique(color))) > count:
        count = found
        color = mixed(color, _met(structure, color), _mates(color, machine))
    return Colors(_numbered(alone), _numbered(color), _shared(structure, color))


def _numbered(color: np.ndarray) -> np.ndarray:
    return np.unique(color, return_inverse=True)[1]


def _own(s: Structure) -> np.ndarray:
    """[num_ranks] color of a rank by itself: its nodes in order, its edges, the links it crosses."""
    inside = s.owner >= 0
    nodes = summed(mixed(s.place[inside], s.content[inside]), s.owner[inside], s.num_ranks)
    own = (s.owner[s.src] == s.owner[s.dst]) & (s.owner[s.src] >= 0)
    within = mixed(s.place[s.src[own]], s.place[s.dst[own]], s.label[own])
    return mixed(nodes, summed(within, s.owner[s.src[own]], s.num_ranks))


def _shared(s: Structure, color: np.ndarray) -> np.ndarray:
    """[num_nodes] color of what is shared: its content and, of a transfer, its ranks' colors and places."""
    found = np.where(s.owner == SHARED, s.content, np.uint64(0))
    for here, there, way in ((s.dst, s.src, 1), (s.src, s.dst, 2)):
        joins = s.meets[here] & (s.owner[there] >= 0)
        parts = mixed(
            np.full(int(joins.sum()), way), s.label[joins], s.place[there[joins]], color[s.owner[there[joins]]]
        )
        found = found + summed(parts, here[joins], len(found))
    return found


def _met(s: Structure, color: np.ndarray) -> np.ndarray:
    """[num_ranks] what a rank meets: transfers and links by their colors, other ranks by theirs."""
    shared = _shared(s, color)
    found = np.zeros(s.num_ranks, dtype=np.uint64)
    for here, there, way in ((s.src, s.dst, 3), (s.dst, s.src, 4)):
        leaves = (s.owner[here] >= 0) & (s.owner[here] != s.owner[there])
        ends, others = here[leaves], there[leaves]
        seen = np.where(s.owner[others] == SHARED, shared[others], mixed(s.place[others], color[s.owner[others]]))
        told = mixed(np.full(len(ends), way), s.label[leaves], s.place[ends], seen)
        found = found + summed(told, s.owner[ends], s.num_ranks)
    return found


def _seats(machine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[num_ranks] place of each rank on its machine, and how many ranks sit there."""
    _, of, count = np.unique(machine, return_inverse=True, return_counts=True)
    order = np.argsort(of, kind="stable")
    seat = np.empty(len(machine), dtype=np.int64)
    seat[order] = np.arange(len(machine)) - np.repeat(np.cumsum(count) - count, count)
    return seat, count[of]


def _mates(color: np.ndarray, machine: np.ndarray) -> np.ndarray:
    """[num_ranks] color of the whole machine."""
    _, of = np.unique(machine, return_inverse=True)
    return summed(mixed(color), of, len(machine))[of]
