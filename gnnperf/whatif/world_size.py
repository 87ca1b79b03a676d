"""The same program on another number of data-parallel ranks: a graph of 8 ranks becomes one of 16,384, no node more.

before   8 ranks     all_reduce of 8, n bytes     all_gather of 8, n/8 bytes each
after    1,024       all_reduce of 1,024, n       all_gather of 1,024, n/1,024 each        rank 0 stands for 1,024

Every rank keeps its own batch. Groups of a replica (tensor, pipeline) stay; they move apart where replicas sit between
their ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from gnnperf.core import InputError, NodeType, Relation, Segment, require
from gnnperf.generate import (
    Folded,
    Replicas,
    doubts,
    find_replicas,
    fold,
    restated,
    shard_messages,
    shard_work,
    smaller,
)
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import Placement
from gnnperf.whatif.edit import Edited, ends, is_type, unedited

SAME_BATCH = "whether the program keeps the batch of a rank: it stays, so that the global batch grows with the ranks"
OTHER_GROUPS = "how {} groups of {} ranks grow, whose ranks are not evenly apart: they stay"
ALGORITHM = "what a library does at a scale that no table of collectives reaches"


@dataclass(frozen=True)
class WorldSize:
    """The graph on another number of ranks: more or fewer replicas.

    Attributes:
        ranks: of the job.
        data_parallel: ranks of a data-parallel group as it is now, where that cannot be determined; None: found.
    """

    ranks: int
    data_parallel: int | None = None

    def __post_init__(self) -> None:
        for name in ("ranks", "data_parallel"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} of a world size", value, "a whole number from 1 up")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Fold the graph, then let data-parallel groups grow; recorded latencies of what changes become unknown.

        Raises:
            InputError: replicas do not come out whole, or nothing tells which groups are data-parallel.
        """
        if self.ranks == graph.world_size:
            return unedited(graph)
        factor = Fraction(self.ranks, graph.world_size)
        replicas = find_replicas(graph, self.data_parallel)
        _check_whole(graph, replicas, factor)
        folded = fold(graph)
        _check_roles(folded, factor, graph.world_size)
        grows = _growing(folded.graph, replicas)
        resized, touched = _resized(folded.graph, grows, factor)
        moved = _moved(resized, replicas, factor)
        stands_for = tuple(int(n * factor) for n in folded.graph.multiplicity.values())
        placed = replace(moved, world_size=self.ranks, placement=_placement(graph, self.ranks), stands_for=stands_for,
                         warnings=restated(moved.warnings, stands_for))  # fmt: skip
        unknown = (SAME_BATCH, *doubts(folded.graph, grows), *_uneven(folded.graph, grows), ALGORITHM)
        return Edited(placed.validate(), touched, folded.came_from, unknown)


def _placement(graph: ExecutionGraph, ranks: int) -> Placement | None:
    """As many ranks on a machine as before; None: as many as the cluster has, where one machine of GPUs was enough."""
    before = graph.placement
    if before is None or (before.hosts == 1 and graph.runs_on_gpu):
        return None
    per_host = max(graph.world_size // before.hosts, 1)
    return Placement(-(-ranks // per_host), before.bandwidth_bytes_per_s, before.bucket_bytes)


def _check_whole(graph: ExecutionGraph, replicas: Replicas, factor: Fraction) -> None:
    if (replicas.count * factor).denominator != 1:
        of_one = graph.world_size // replicas.count
        raise InputError(
            f"{int(graph.world_size * factor)} ranks are no whole number of replicas", where="ranks of a world size",
            allowed=f"a multiple of {of_one}, the ranks of one replica",
        )  # fmt: skip


def _check_roles(folded: Folded, factor: Fraction, world_size: int) -> None:
    """Every rank in the graph must stand for a whole number of ranks."""
    counts = folded.graph.multiplicity
    bad = [rank for rank, count in counts.items() if (count * factor).denominator != 1]
    if bad:
        why = next((each.why for each in folded.classes if each.rank == bad[-1]), "")
        raise InputError(
            f"{int(world_size * factor)} ranks, but {len(counts)} of {world_size} have a role of their own"
            + (f" (rank {bad[-1]} {why})" if why else ""), where="ranks of a world size",
            allowed=f"a multiple of {world_size}",
        )  # fmt: skip


def _growing(graph: ExecutionGraph, replicas: Replicas) -> np.ndarray:
    """[num_nodes] bool: transfers of groups that hold whole data-parallel groups, and ranks' parts in them."""
    nodes = graph.nodes
    size, stride = nodes["group_size"].to_numpy(), nodes["group_stride"].to_numpy()
    transfer, part = is_type(graph, NodeType.COLLECTIVE), is_type(graph, NodeType.COMM)
    result = transfer & (size > 1) & ((size == graph.world_size) | replicas.hold(size, stride))
    src, dst = ends(graph, Relation.JOINS, Relation.RELEASES)
    to_part, of_part = src[result[dst]], dst[result[src]]
    result[to_part] = result[of_part] = True
    left = np.flatnonzero(result & part & (nodes["segment"] == Segment.ARRIVE).to_numpy())
    result[left + 1] = True  # a part's exit comes right after it, whoever releases it
    return result & (part | transfer)


def _resized(graph: ExecutionGraph, grows: np.ndarray, factor: Fraction) -> tuple[ExecutionGraph, np.ndarray]:
    """Sizes of groups, messages and shards; [num_nodes] bool: what has changed."""
    nodes = graph.nodes
    shards = shard_messages(graph, grows) | shard_work(graph, grows)
    nodes = smaller(nodes, shards, float(1 / factor))
    size = nodes["group_size"].to_numpy()
    known = grows & (size > 0)
    larger = np.where(known, size * factor.numerator // factor.denominator, size).astype(np.int32)
    touched = grows | shards
    predicted = touched & ~is_type(graph, NodeType.HOST)
    nodes = nodes.assign(group_size=larger, latency_us=nodes["latency_us"].mask(predicted))
    return replace(graph, nodes=nodes), touched


def _moved(graph: ExecutionGraph, replicas: Replicas, factor: Fraction) -> ExecutionGraph:
    """Ranks by their numbers in the larger job, and groups around replicas as far apart."""
    nodes = graph.nodes
    rank, first = nodes["rank"].to_numpy(), nodes["group_first"].to_numpy()
    stride = nodes["group_stride"].to_numpy()
    around = stride >= replicas.block
    nodes = nodes.assign(
        rank=np.where(rank >= 0, replicas.moved(rank, factor), rank).astype(np.int32),
        group_first=np.where(first >= 0, replicas.moved(first, factor), first).astype(np.int32),
        group_stride=np.where(around, stride * factor.numerator // factor.denominator, stride).astype(np.int32),
    )
    ranks = tuple(int(r) for r in replicas.moved(np.array(graph.ranks), factor))
    return replace(graph, nodes=nodes, ranks=ranks)


def _uneven(graph: ExecutionGraph, grows: np.ndarray) -> tuple[str, ...]:
    nodes = graph.nodes
    left = is_type(graph, NodeType.COLLECTIVE) & (nodes["group_stride"] < 1) & (nodes["group_size"] > 1) & ~grows
    counts = nodes.loc[left, "group_size"].value_counts()
    return tuple(OTHER_GROUPS.format(count, size) for size, count in counts.items())
