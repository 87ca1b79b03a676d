"""The demands of every node of a step while it runs: cores, and the links it crosses.

GPU                                                             transfer -> links
CPU   any work of a thread -> one core of its rank's pool       transfer -> part of a core of each rank, and links
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gnnperf.core import NodeType, Relation
from gnnperf.graph import ExecutionGraph, combined
from gnnperf.hardware import POINT_TO_POINT, UNLIMITED, Contention, machines_of, ranks_per_machine, ring_terms

IDLE, RUNS, MOVES = 0, 1, 2  # roles: claims nothing; runs on a place; moves data between places
WORK_OF_THREADS = (NodeType.COMPUTE, NodeType.MEMORY, NodeType.HOST)
OUTWARD, INWARD = 0, 1


class ResourceDemands(NamedTuple):
    """Roles and demands of the nodes of one step; a named tuple, because the compiled simulation takes no class."""

    role: np.ndarray  # [num_nodes] IDLE, RUNS or MOVES
    place: np.ndarray  # [num_nodes] pool of cores of a node that runs; 0 for others
    core_share: np.ndarray  # [num_nodes] share of a core that a transfer needs on each of its ranks, at full speed
    # [num_nodes] time at the limit that a transfer's bytes need on a line that a token bucket limits
    line_us: np.ndarray
    # of node n: places[first_place[n]:first_place[n + 1]], one per rank of a transfer; none of another node
    first_place: np.ndarray
    places: np.ndarray
    first_link: np.ndarray  # first_link, links: likewise the directed links that a transfer crosses
    links: np.ndarray
    cores: np.ndarray  # [num_places] processor cores; unlimited for a device
    stretches: np.ndarray  # [num_nodes] bool, the rate may fall below 1
    full_us: float  # worth of a full bucket on its line
    spared_share: float  # of the time that bytes with tokens do not take

    @property
    def may_share(self) -> bool:
        """Whether there is a transfer, or more threads than cores may meet."""
        limited = np.isfinite(self.cores[self.place[self.role == RUNS]])
        return bool((self.role == MOVES).any() or limited.any())


def resource_demands(
    graph: ExecutionGraph, latency_us: np.ndarray, contention: Contention, stretches: np.ndarray | None = None
) -> ResourceDemands:
    """Of the nodes of `graph`, with isolated latencies [num_nodes]; `stretches` [num_nodes] bool, None: all."""
    nodes, kind = graph.nodes, graph.nodes["node_type"]
    pool_of, cores = contention.pools(graph.ranks)
    rank = nodes["rank"].to_numpy()
    place = np.zeros(max(graph.ranks) + 2, dtype=np.int64)  # of each rank; the last one that of no rank
    place[list(graph.ranks)] = pool_of
    moves = (kind == NodeType.COLLECTIVE).to_numpy() & (latency_us > 0)
    works = kind.isin(WORK_OF_THREADS if any(count < UNLIMITED for count in cores) else ()).to_numpy()
    runs = works & (latency_us > 0) & np.isin(rank, graph.ranks)
    parts = _parts(graph, moves)
    outer = _outer(graph, parts, contention)
    crossing, link = _links(parts, outer, contention)
    bucket = contention.outer_bucket
    # Time that one core takes for the message, of the transfer's time, at most all of it; 0 for an unknown size.
    rate = np.where(outer, contention.outer_core_bytes_per_s, contention.inner_core_bytes_per_s)
    core_us = np.nan_to_num(nodes["message_bytes"].to_numpy()) / rate * 1e6  # [num_nodes]
    core_share = np.where(moves, np.minimum(core_us, latency_us) / np.where(moves, latency_us, 1.0), 0.0)
    return ResourceDemands(
        role=np.select([runs, moves], [RUNS, MOVES], IDLE).astype(np.int8),
        place=place[np.where(np.isin(rank, graph.ranks), rank, -1)],
        core_share=core_share,
        line_us=_line_us(graph, parts, outer, contention), first_place=offsets(parts.node, graph.num_nodes),
        places=place[parts.rank], first_link=offsets(crossing, graph.num_nodes), links=link,
        cores=np.array(cores, dtype=np.float64),
        stretches=np.ones(graph.num_nodes, dtype=bool) if stretches is None else stretches,
        full_us=0.0 if bucket is None else bucket.full_us,
        spared_share=0.0 if bucket is None else bucket.spared_share,
    )  # fmt: skip


@dataclass(frozen=True)
class _Parts:
    """Ranks of transfers, sorted by transfer; all [num_parts]."""

    node: np.ndarray  # the transfer; rank: a traced rank of it; role: "send", "recv" or its kind
    rank: np.ndarray
    role: np.ndarray


def _parts(graph: ExecutionGraph, moves: np.ndarray) -> _Parts:
    joins = graph.edges[(graph.edges["relation"] == Relation.JOINS).to_numpy()]
    src, dst = joins["src"].to_numpy(), joins["dst"].to_numpy()
    rank = graph.nodes["rank"].to_numpy()[src]
    known = moves[dst] & np.isin(rank, graph.ranks)
    order = np.lexsort((rank[known], dst[known]))
    role = graph.nodes["collective"].iloc[src[known][order]].astype(object).to_numpy()
    return _Parts(dst[known][order], rank[known][order], role)


def offsets(node: np.ndarray, num_nodes: int) -> np.ndarray:
    """[num_nodes + 1] where each node's entries begin, of entries sorted by node."""
    return np.searchsorted(node, np.arange(num_nodes + 1)).astype(np.int64)


def _outer(graph: ExecutionGraph, parts: _Parts, contention: Contention) -> np.ndarray:
    """[num_nodes] bool: the ranks of the transfer are on several nodes of the cluster.

    The ranks in the graph tell, and where some stand for others or are missing, what is known of the whole group.
    """
    least, most = np.full(graph.num_nodes, np.iinfo(np.int64).max), np.full(graph.num_nodes, -1)
    machine = parts.rank.astype(np.int64) // contention.ranks_per_node
    np.minimum.at(least, parts.node, machine)
    np.maximum.at(most, parts.node, machine)
    size, first, stride = (graph.nodes[c].to_numpy() for c in ("group_size", "group_first", "group_stride"))
    known = (first >= 0) & (stride > 0)
    return (most > least) | (known & (machines_of(size, first, stride, contention.ranks_per_node) > 1))


def _line_us(graph: ExecutionGraph, parts: _Parts, outer: np.ndarray, contention: Contention) -> np.ndarray:
    """[num_nodes] us at the limit of a line between machines; 0 without a bucket, within a machine, of unknown size.

    A ring passes all lines of a machine; an exchange sends what leaves for other machines, of each rank of the line.
    """
    bucket, nodes = contention.outer_bucket, graph.nodes
    outer = outer & np.isin(np.arange(graph.num_nodes), parts.node)  # [num_nodes]
    if bucket is None or not contention.ranks_per_outer_link or not outer.any():
        return np.zeros(graph.num_nodes)
    kinds, size = nodes["collective"].astype(object).to_numpy(), nodes["group_size"].to_numpy()
    ranks = np.where(size > 1, size, np.nan).astype(float)
    inside, sharing = _together(graph, parts, contention)  # [num_nodes] each
    leaves = np.where(kinds == "all_to_all", (ranks - inside) / (ranks - 1) * sharing, sharing / inside)
    leaves[np.isin(kinds, POINT_TO_POINT)] = 1.0
    sent = nodes["message_bytes"].to_numpy() * ring_terms(kinds, ranks)[1] * leaves  # [num_nodes] bytes on the line
    return np.where(outer, np.nan_to_num(sent) / bucket.limit_bytes_per_s * 1e6, 0.0)


def _together(graph: ExecutionGraph, parts: _Parts, contention: Contention) -> tuple[np.ndarray, np.ndarray]:
    """[num_nodes] ranks of a transfer's group on one machine, and on one line out of it, the most there are.

    Of a group whose ranks are not known, those in the graph.
    """
    size, first, stride = (graph.nodes[c].to_numpy() for c in ("group_size", "group_first", "group_stride"))
    per_line = contention.ranks_per_outer_link
    inside = ranks_per_machine(size, first, stride, contention.ranks_per_node)
    sharing = np.minimum(-(-per_line // np.maximum(stride, 1)), inside)
    known = (size > 0) & (first >= 0) & (stride > 0)
    return (np.where(known, inside, _most_parts(graph, parts, contention.ranks_per_node)),
            np.where(known, sharing, _most_parts(graph, parts, per_line)))  # fmt: skip


def _most_parts(graph: ExecutionGraph, parts: _Parts, ranks: int) -> np.ndarray:
    """[num_nodes] parts of a transfer in one block of so many ranks, the most there are; at least 1."""
    blocks = combined([parts.node, parts.rank // ranks])
    _, first, count = np.unique(blocks, return_index=True, return_counts=True)
    most = np.ones(graph.num_nodes, dtype=np.int64)
    np.maximum.at(most, parts.node[first], count)
    return most


def _links(parts: _Parts, outer: np.ndarray, contention: Contention) -> tuple[np.ndarray, np.ndarray]:
    """[num_uses] (transfer, directed link) by transfer. Both directions, but one of either end of a send."""
    outer = outer[parts.node]  # [num_parts]
    per_link = np.where(outer, contention.ranks_per_outer_link, contention.ranks_per_inner_link)
    line = parts.rank.astype(np.int64) // np.maximum(per_link, 1) * 2 + outer
    result = []
    for direction, other_end in ((OUTWARD, "recv"), (INWARD, "send")):
        uses = (per_link > 0) & (parts.role != other_end)
        result.append(np.stack([parts.node[uses], line[uses] * 2 + direction], axis=1))
    uses = np.concatenate(result)
    node, link = uses[np.unique(combined([uses[:, 0], uses[:, 1]]), return_index=True)[1]].T  # [num_uses]
    return node, np.unique(link, return_inverse=True)[1].astype(np.int64)
