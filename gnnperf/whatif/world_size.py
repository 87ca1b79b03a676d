"""The same program on another number of data-parallel ranks: a graph of 8 ranks becomes one of 16,384, no node more.

before   8 ranks     all_reduce of 8, n bytes     all_gather of 8, n/8 bytes each
after    1,024       all_reduce of 1,024, n       all_gather of 1,024, n/1,024 each        rank 0 stands for 1,024

Every rank keeps its own batch. Groups of a replica (tensor, pipeline) stay; they move apart where replicas sit between
their ranks. A run without data-parallel groups (data_parallel: 1) becomes several replicas, which add up gradients.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, OpFamily, Phase, Relation, Segment, require
from gnnperf.generate import Replicas, doubts, find_replicas, fold, of_ranks, shard_messages, shard_work, smaller
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph, lane_keys, take
from gnnperf.whatif.added_sums import NO_HOST, Sum, placed, templates, updated, with_sums
from gnnperf.whatif.edit import ON_DEVICE, Edited, chosen, ends, is_type, refusal, unedited

SAME_BATCH = "whether the program keeps the batch of a rank: it stays, so that the global batch grows with the ranks"
OTHER_GROUPS = "how {} groups of {} ranks grow, whose ranks are not evenly apart: they stay"
UNEQUAL = ("which ranks of the job have which recorded role: ranks differ ({}), and ranks of some replicas stand for "
           "more than those of others")  # fmt: skip
ALGORITHM = "what a library does at a scale that no table of collectives reaches"


@dataclass(frozen=True)
class WorldSize:
    """The graph on another number of ranks: more or fewer replicas."""

    ranks: int  # of the job
    # ranks of a data-parallel group as it is now, where that cannot be determined; 1: there is none, the run becomes
    # one of several replicas; None: found
    data_parallel: int | None = None

    def __post_init__(self) -> None:
        for name in ("ranks", "data_parallel"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} of a world size", value, "a whole number from 1 up")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Fold the graph, then let data-parallel groups grow; recorded latencies of what changes become unknown.

        Raises:
            InputError: replicas do not come out whole, or nothing shows which groups are data-parallel.
        """
        if self.ranks == graph.world_size:
            return unedited(graph)
        factor = Fraction(self.ranks, graph.world_size)
        if self.data_parallel == 1:
            return _replicated(graph, self.ranks, factor)
        replicas = find_replicas(graph, self.data_parallel)
        if (replicas.count * factor).denominator != 1:
            of_one = graph.world_size // replicas.count
            raise InputError(f"{self.ranks} ranks are no whole number of replicas", where="ranks of a world size",
                             allowed=f"a multiple of {of_one}, the ranks of one replica")  # fmt: skip
        small, stands_for, came_from, unequal = _roles(graph, replicas, factor)
        grows = _growing(small, replicas)
        resized, touched = _resized(small, grows, factor)
        moved = _moved(resized, replicas, factor)
        nodes = small.nodes
        left = is_type(small, NodeType.COLLECTIVE) & (nodes["group_stride"] < 1) & (nodes["group_size"] > 1) & ~grows
        counts = nodes.loc[left, "group_size"].value_counts()
        uneven = (OTHER_GROUPS.format(count, size) for size, count in counts.items())
        unknown = (SAME_BATCH, *unequal, *doubts(small, grows), *uneven, ALGORITHM)
        return Edited(placed(moved, graph, self.ranks, stands_for), touched, came_from, unknown)


def _roles(
    graph: ExecutionGraph, replicas: Replicas, factor: Fraction
) -> tuple[ExecutionGraph, tuple[int, ...], np.ndarray, tuple[str, ...]]:
    """(ranks with equal roles once, ranks that each stands for, [num_nodes] where nodes came from, assumptions).

    Recordings of equal ranks differ by chance (a segment of an `aten::to`). Where such roles do not come out whole,
    every rank stays; ranks of the first replicas stand for one rank more than the others, or the last replicas go.

    Raises InputError: ranks stand for others already, and do not come out whole.
    """
    folded = fold(graph)
    counts = folded.graph.multiplicity
    if all((count * factor).denominator == 1 for count in counts.values()):
        return folded.graph, tuple(int(n * factor) for n in counts.values()), folded.came_from, ()
    ranks = np.array(graph.ranks)
    if len(ranks) < graph.world_size:
        raise InputError(
            f"{int(graph.world_size * factor)} ranks, but {len(ranks)} ranks stand for {graph.world_size}",
            where="ranks of a world size", allowed=f"a multiple of {graph.world_size}",
        )  # fmt: skip
    replica, after = ranks % replicas.block // replicas.stride, int(replicas.count * factor)
    stands_for = after // replicas.count + (replica < after % replicas.count)  # [num_ranks]
    small, came_from = _of_ranks(graph, np.flatnonzero(stands_for > 0))
    why = next(each.why for each in folded.classes if each.why)
    return small, tuple(stands_for[stands_for > 0].tolist()), came_from, (UNEQUAL.format(why),)


def _of_ranks(graph: ExecutionGraph, positions: np.ndarray) -> tuple[ExecutionGraph, np.ndarray]:
    """The graph of some ranks, and [num_nodes] where its nodes came from; transfers of other ranks only go."""
    left = np.isin(graph.nodes["rank"].to_numpy(), np.array(graph.ranks)[positions])
    part, transfer = ends(graph, Relation.JOINS)
    keep = left | is_type(graph, NodeType.LINK) | np.isin(np.arange(graph.num_nodes), transfer[left[part]])
    nodes, edges = take(graph.nodes, graph.edges, keep)
    cross_step = graph.cross_step
    if cross_step is not None:
        cross_step = (np.cumsum(keep) - 1)[cross_step[:, keep[cross_step].all(axis=0)]]
    small = of_ranks(replace(graph, nodes=nodes, edges=edges, cross_step=cross_step), positions)
    return small, np.flatnonzero(keep)


# A data-parallel dimension around a run that has none: every rank adds up its gradients with those of the replicas.
#
# before   backward |last kernel|          |update|
# after    backward |last kernel|arrive >[all_reduce of all gradients]> exit|update|

ADDED = ("how gradients are divided into buckets, and how much of their sum overlaps with the backward: one all_reduce "
         "of {:.4g} MB per rank after it, in {}, the dtype of its products")  # fmt: skip


def _replicated(graph: ExecutionGraph, ranks: int, factor: Fraction) -> Edited:
    """Whole replicas of the run.

    Raises InputError: they are not whole, or the graph has no all_reduce to copy, no optimizer or no shapes of it.
    """
    if factor.denominator != 1:
        raise InputError(f"{ranks} ranks are no whole number of replicas", where="ranks of a world size",
                         allowed=f"a multiple of {graph.world_size}")  # fmt: skip
    like = templates(graph)
    products = chosen(graph.nodes, NodeType.COMPUTE, phase=Phase.BACKWARD, family=OpFamily.GEMM)
    known = graph.nodes["dtype"][products & graph.nodes["dtype"].isin(list(DTYPE_BYTES)).to_numpy()]
    dtype = str(known.astype(str).mode().iloc[0]) if len(known) else "float32"
    sizes = {one: float(DTYPE_BYTES[dtype] * sum(map(prod, updated(graph, one)))) for one in graph.ranks}
    of_rank = graph.nodes["rank"].to_numpy()[like.anchors]
    sums = [
        Sum(place, sizes[rank], Phase.BACKWARD, *_around_optimizer(graph, anchor))
        for place, (rank, anchor) in enumerate(zip(of_rank.tolist(), like.anchors.tolist(), strict=True))
    ]
    larger, added, origin = with_sums(graph, like, sums, factor.numerator, graph.world_size)
    stands_for = tuple(int(n * factor) for n in graph.multiplicity.values())
    unknown = (SAME_BATCH, ADDED.format(max(sizes.values()) / 1e6, dtype), NO_HOST, ALGORITHM)
    return Edited(placed(larger, graph, ranks, stands_for), added, origin, unknown)


def _around_optimizer(graph: ExecutionGraph, part: int) -> tuple[np.ndarray, np.ndarray]:
    """(last work of the backward on each lane, first work of the optimizer) of the rank and step of a part."""
    nodes, lane = graph.nodes, lane_keys(graph.nodes)
    same = (nodes[["rank", "step"]] == nodes.loc[part, ["rank", "step"]]).all(axis=1).to_numpy()
    works = is_type(graph, *ON_DEVICE) & same
    before = pd.Series(np.flatnonzero(works & (nodes["phase"] == Phase.BACKWARD).to_numpy()))
    before = before.groupby(lane[before.to_numpy()]).max()
    updates = np.flatnonzero(works & (nodes["phase"] == Phase.OPTIMIZER).to_numpy())
    after = [one for one in updates.tolist() if one > before.get(lane[one], one)]
    if before.empty or not after:
        raise refusal(graph, "no update of parameters after a backward", "a training step")
    return before.to_numpy(), np.array(after[:1])


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
