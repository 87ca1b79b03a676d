"""fold(graph): ranks with equal roles once, with their number.

before   rank 0 .. rank 7, each [T1|gemm|...|arrive]>[all_reduce of 8]>[exit|...]      8 x nodes
after    rank 0 (stands for 8)  [T1|gemm|...|arrive]>[all_reduce of 8]>[exit|...]      1 x nodes, groups of 8
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.generate.folding.classes import Colors, refine
from gnnperf.generate.folding.quotient import of_ranks, reduced, stand_ins
from gnnperf.generate.folding.reasons import why_apart
from gnnperf.generate.folding.structure import structure_of
from gnnperf.generate.folding.words import said_anew
from gnnperf.graph import ExecutionGraph


@dataclass(frozen=True)
class RankClass:
    """Ranks that nothing in the graph tells apart.

    Attributes:
        rank: the one in the folded graph.
        ranks: all of them, ascending.
        why: what tells them from rank classes before; "" for the first class.
    """

    rank: int
    ranks: tuple[int, ...]
    why: str = ""


@dataclass(frozen=True)
class Folded:
    """A folded graph.

    Attributes:
        graph: one rank of each class; `stands_for` has their numbers.
        classes: in order of their ranks in the graph.
        node: [num_nodes of the graph before] the folded graph's node that stands for each one.
        came_from: [num_nodes of the folded graph] the node of the graph before that each one is.
    """

    graph: ExecutionGraph
    classes: tuple[RankClass, ...]
    node: np.ndarray
    came_from: np.ndarray

    @property
    def folded_ranks(self) -> tuple[int, ...]:
        """Ranks that are no longer in the graph."""
        return tuple(sorted(rank for each in self.classes for rank in each.ranks if rank != each.rank))


def fold(graph: ExecutionGraph, ranks_per_node: int | None = None) -> Folded:
    """One rank per role: schedules of the folded and of the whole graph are the same.

    That holds for all latencies that are equal on equal nodes, as those of the analytical model are; recorded latencies
    stay those of the rank that is kept. Ranks on CPUs share their machine's cores, so machines are folded there,
    not ranks.

    Args:
        graph: recorded, captured or planned.
        ranks_per_node: of a machine. Ranks whose groups span unequal numbers of machines are then kept apart; None:
            as the graph's card says, and nothing where it does not.
    """
    per_machine = ranks_per_node or _ranks_per_host(graph)
    structure = structure_of(graph, per_machine)
    machine = np.arange(len(graph.ranks)) if graph.runs_on_gpu else _machines(graph, per_machine)
    before = np.array(list(graph.multiplicity.values()), dtype=np.int64)
    colors = refine(structure, before, machine)
    stands_in = stand_ins(structure, colors)
    small, node = reduced(graph, structure, stands_in)
    _, first = np.unique(colors.rank, return_index=True)
    chosen = np.sort(first)  # positions of the kept ranks
    stands_for = tuple(int(before[colors.rank == colors.rank[i]].sum()) for i in chosen)
    small = of_ranks(small, chosen)
    small = replace(small, stands_for=stands_for, warnings=said_anew(graph.warnings, stands_for))
    came_from = np.flatnonzero(stands_in == np.arange(len(stands_in)))
    return Folded(small.validate(), _classes(graph, colors, chosen, machine), node, came_from)


def _ranks_per_host(graph: ExecutionGraph) -> int | None:
    """As the run's card says."""
    return None if graph.placement is None else max(graph.world_size // graph.placement.hosts, 1)


def _machines(graph: ExecutionGraph, per_machine: int | None) -> np.ndarray:
    """[num_ranks] who stays together: ranks of one machine, or bound to one core; all where nothing is known."""
    ranks = np.array(graph.ranks, dtype=np.int64)
    found = ranks // per_machine if per_machine else np.zeros(len(ranks), dtype=np.int64)
    cores = () if graph.placement is None else graph.placement.core_sets
    holders: dict[int, int] = {}  # core -> machine; hosts may be namespaces of one machine
    for position, rank in enumerate(ranks.tolist()):
        for core in cores[rank] if rank < len(cores) else ():
            found = np.where(found == found[position], holders.setdefault(core, int(found[position])), found)
    return found


def _classes(
    graph: ExecutionGraph, colors: Colors, chosen: np.ndarray, machine: np.ndarray
) -> tuple[RankClass, ...]:  # fmt: skip
    ranks = np.array(graph.ranks)
    found = []
    for position in chosen.tolist():
        own = tuple(int(r) for r in ranks[colors.rank == colors.rank[position]])
        why = "" if position == chosen[0] else why_apart(graph, colors.alone, machine, position, int(chosen[0]))
        found.append(RankClass(int(ranks[position]), own, why))
    return tuple(found)
