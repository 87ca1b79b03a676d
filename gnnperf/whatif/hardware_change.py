"""What edits declare about hardware, for whoever predicts: which cluster answers for which node.

rank 0   cluster as it is                      |
rank 1   ... with another device        |      |  a transfer is requested of every rank's hardware: the slowest rules
all_to_all, any rank   ... with other links    |

A graph holds work, not hardware; so an edit declares, and `requested` says of which clusters the predictor is
requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnnperf.core import InputError, NodeType, Relation
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec

MIXED = "how a library goes about a group of unlike ranks: a transfer takes what it takes on the slowest of them"


@dataclass(frozen=True)
class HardwareChange:
    """One declared change.

    Attributes:
        on: the cluster before -> the cluster after.
        ranks: whose hardware changes; None all.
        collective: the kind of collective it holds for; None: everything that runs.
    """

    on: Callable[[ClusterSpec], ClusterSpec]
    ranks: tuple[int, ...] | None = None
    collective: str | None = None

    def holds_for(self, rank: np.ndarray, kind: np.ndarray) -> np.ndarray:
        """[n] bool: of work of these ranks [n] (-1: of no rank) and kinds of collectives [n] (None: no collective)."""
        of_rank = np.ones(len(rank), bool) if self.ranks is None else np.isin(rank, self.ranks)
        return of_rank if self.collective is None else of_rank & (kind == self.collective)


@dataclass(frozen=True)
class Requested:
    """Which cluster answers for which node; a transfer has a row for every rank that takes part.

    Attributes:
        clusters: each once, in the order of their first node.
        node: [num_rows] node ids, every node at least once.
        cluster: [num_rows] place in `clusters`.
    """

    clusters: tuple[ClusterSpec, ...]
    node: np.ndarray
    cluster: np.ndarray


def requested(graph: ExecutionGraph, cluster: ClusterSpec, changes: Sequence[HardwareChange]) -> Requested:
    """The clusters after all changes, made one after the other, and whose they are.

    Args:
        graph: the edited graph.
        cluster: without any change.
        changes: in the order of the edits.

    Raises:
        InputError: a change does not fit a cluster.
    """
    node, rank = _rows(graph)
    kind = graph.nodes["collective"].astype(object).to_numpy()[node]
    code = np.zeros(len(node), dtype=np.int64)  # bit i: change i holds
    for place, change in enumerate(changes):
        code |= change.holds_for(rank, kind).astype(np.int64) << place
    distinct, first, number = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    results = tuple(_after(cluster, changes, int(distinct[place])) for place in order)
    return Requested(results, node, np.argsort(order)[number])


def _after(cluster: ClusterSpec, changes: Sequence[HardwareChange], code: int) -> ClusterSpec:
    for place, change in enumerate(changes):
        if code >> place & 1:
            cluster = change.on(cluster)
    return cluster


def _rows(graph: ExecutionGraph) -> tuple[np.ndarray, np.ndarray]:
    """(node, rank) [num_rows]: nodes of ranks once, transfers per rank that joins; of no rank: rank -1."""
    rank = graph.nodes["rank"].to_numpy().astype(np.int64)
    joins = (graph.edges["relation"] == Relation.JOINS).to_numpy()
    part, transfer = graph.edges["src"].to_numpy()[joins], graph.edges["dst"].to_numpy()[joins]
    isolated = np.setdiff1d(np.arange(graph.num_nodes), transfer)
    node = np.concatenate([isolated, transfer])
    return node, np.concatenate([rank[isolated], rank[part]])


def transfers_of(graph: ExecutionGraph, ranks: Sequence[int] | None) -> np.ndarray:
    """[num_nodes] bool: transfers in which one of the ranks takes part; None: all."""
    is_transfer = (graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()
    if ranks is None:
        return is_transfer
    node, rank = _rows(graph)
    result = np.zeros(graph.num_nodes, dtype=bool)
    result[node[np.isin(rank, list(ranks))]] = True
    return result & is_transfer


def work_of(graph: ExecutionGraph, ranks: tuple[int, ...] | None) -> np.ndarray:
    """[num_nodes] bool: work of these ranks; None: of all.

    Raises:
        InputError: the graph has not all of them.
    """
    rank = graph.nodes["rank"].to_numpy()
    missing = [one for one in ranks or () if one not in graph.ranks]
    if missing or ranks == ():
        raise InputError(f"no rank {', '.join(map(str, missing))}", where=f"graph {graph.name!r}",
                         allowed=", ".join(map(str, graph.ranks)))  # fmt: skip
    return rank >= 0 if ranks is None else np.isin(rank, ranks)
