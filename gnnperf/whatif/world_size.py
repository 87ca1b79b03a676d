"""The same program on another number of data-parallel ranks: a graph of 8 ranks becomes one of 16,384, no node more.

before   8 ranks     all_reduce of 8, n bytes     all_gather of 8, n/8 bytes each
after    1,024       all_reduce of 1,024, n       all_gather of 1,024, n/1,024 each        rank 0 stands for 1,024

Every rank keeps its own batch. Groups of a replica (tensor, pipeline) stay; they move apart where replicas sit between
their ranks. A run without data-parallel groups (data_parallel: 1) becomes several replicas, which add up gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, OpFamily, Phase, Relation, Segment, require
from gnnperf.generate import (
    Replicas,
    doubts,
    find_replicas,
    fold,
    of_ranks,
    parse,
    restated,
    shard_messages,
    shard_work,
    smaller,
    tensors,
)
from gnnperf.graph import DTYPE_BYTES, EdgeList, ExecutionGraph, concat_tables, lane_keys, node_table, take
from gnnperf.hardware import Placement
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
        unknown = (SAME_BATCH, *unequal, *doubts(small, grows), *_uneven(small, grows), ALGORITHM)
        return Edited(_placed(moved, graph, self.ranks, stands_for), touched, came_from, unknown)


def _placed(edited: ExecutionGraph, before: ExecutionGraph, ranks: int, stands_for: tuple[int, ...]) -> ExecutionGraph:
    placement, warnings = _placement(before, ranks), restated(edited.warnings, stands_for)
    return replace(edited, world_size=ranks, placement=placement, stands_for=stands_for, warnings=warnings).validate()


def _placement(graph: ExecutionGraph, ranks: int) -> Placement | None:
    """As many ranks on a machine as before; None: as many as the cluster has, where one machine of GPUs was enough."""
    before = graph.placement
    if before is None or (before.hosts == 1 and graph.runs_on_gpu):
        return None
    per_host = max(graph.world_size // before.hosts, 1)
    return Placement(-(-ranks // per_host), before.bandwidth_bytes_per_s, before.bucket_bytes)


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
#
# The new parts are copies of an all_reduce of the same rank: its measured latency, scaled by the model's ratio.

# Ops of optimizers on every parameter once, the surest first: SGD multiplies its momentum once and adds twice.
ONCE = ("fused", "foreach_addcdiv", "addcdiv", "foreach_mul_", "mul_", "foreach_add", "add_")
ADDED = ("how gradients are divided into buckets, and how much of their sum overlaps with the backward: one all_reduce "
         "of {:.4g} MB per rank after it, in {}, the dtype of its products")  # fmt: skip
NO_HOST = "what hosts and copies into buckets cost for it: no call is added"


def _replicated(graph: ExecutionGraph, ranks: int, factor: Fraction) -> Edited:
    """Whole replicas of the run.

    Raises InputError: they are not whole, or the graph has no all_reduce to copy, no optimizer or no shapes of it.
    """
    if factor.denominator != 1:
        raise InputError(f"{ranks} ranks are no whole number of replicas", where="ranks of a world size",
                         allowed=f"a multiple of {graph.world_size}")  # fmt: skip
    rows, source, anchors = _templates(graph) if graph.world_size > 1 else _new_parts(graph)
    nodes, origin = concat_tables([graph.nodes, rows]), np.concatenate([np.arange(graph.num_nodes), source])
    arrive = graph.num_nodes + 2 * np.arange(len(anchors))
    transfer = graph.num_nodes + 2 * len(anchors) + np.arange(len(anchors))
    added = np.arange(len(origin)) >= graph.num_nodes
    rank = nodes["rank"].to_numpy()
    of_rank = rank.copy()
    of_rank[transfer] = rank[arrive]
    products = chosen(nodes, NodeType.COMPUTE, phase=Phase.BACKWARD, family=OpFamily.GEMM)
    known = nodes["dtype"][products & nodes["dtype"].isin(list(DTYPE_BYTES)).to_numpy()].astype(str).mode()
    dtype = str(known.iloc[0]) if len(known) else "float32"
    sizes = {one: _gradient_bytes(graph, one, dtype) for one in graph.ranks}
    message = np.array([sizes.get(one, np.nan) for one in of_rank.tolist()])
    columns: dict[str, tuple[np.ndarray | float, str]] = {
        "group_size": (factor.numerator, "int32"), "group_stride": (graph.world_size, "int32"),
        "group_first": (of_rank, "int32"), "message_bytes": (message, "float64"), "flops": (np.nan, "float64"),
        "bytes": (np.nan, "float64"), "start_us": (np.nan, "float64"), "blocked_us": (0.0, "float64"),
    }  # fmt: skip
    stream = nodes["stream"].to_numpy()
    free = {one: int(stream[rank == one].max()) + 1 for one in graph.ranks}
    own = added & (rank >= 0)
    nodes = nodes.assign(
        node_id=np.arange(len(nodes)),
        phase=nodes["phase"].where(~added, str(Phase.BACKWARD)),
        input_dims=nodes["input_dims"].where(~added),
        stream=np.where(own, [free.get(one, -1) for one in rank.tolist()], stream).astype(np.int64),
        **{
            name: np.where(added, value, nodes[name].to_numpy()).astype(kind) for name, (value, kind) in columns.items()
        },
    )
    nodes = nodes.assign(latency_us=nodes["latency_us"].mask(added & (rank < 0)))
    edges = EdgeList()
    edges.add(arrive, transfer, Relation.JOINS)
    edges.add(transfer, arrive + 1, Relation.RELEASES)
    for place, anchor in enumerate(anchors.tolist()):
        before, after = _around_optimizer(graph, anchor)
        edges.add(before, np.full(len(before), arrive[place]), Relation.WAITS, "event")
        edges.add(np.full(len(after), arrive[place] + 1), after, Relation.WAITS, "event")
    placed = graph.edges["relation"].isin([str(Relation.RUNS_ON), str(Relation.CROSSES)])
    # The nodes whose devices and links the new ones have.
    like = np.concatenate([np.repeat(anchors, 2), source[2 * len(anchors) :]])
    copies = [graph.edges[placed & (graph.edges["src"] == old)].assign(src=new)
              for old, new in zip(like.tolist(), np.flatnonzero(added).tolist(), strict=True)]  # fmt: skip
    tables = [part for part in (graph.edges, edges.table(), *copies) if len(part)]
    larger = replace(graph, nodes=nodes, edges=concat_tables(tables))
    stands_for = tuple(int(n * factor) for n in graph.multiplicity.values())
    unknown = (SAME_BATCH, ADDED.format(max(sizes.values()) / 1e6, dtype), NO_HOST, ALGORITHM)
    return Edited(_placed(larger, graph, ranks, stands_for), added, origin, unknown)


# Rows of arrive, exit, ... and transfers; origins; node of each rank.
Added = tuple[pd.DataFrame, np.ndarray, np.ndarray]


def _new_parts(graph: ExecutionGraph) -> Added:
    """Of a run on one device, which has no sum to copy: the model predicts it, as it came from no measured node."""
    nodes, kernels = graph.nodes, np.flatnonzero(chosen(graph.nodes, *ON_DEVICE, phase=Phase.BACKWARD))
    unmeasured = np.flatnonzero(is_type(graph, NodeType.DEVICE))
    if not len(kernels) or not len(unmeasured):
        raise refusal(graph, "no backward pass", "a training step")
    last = nodes.iloc[kernels[-1]]
    rows = node_table(
        3, node_type=np.array([NodeType.COMM, NodeType.COMM, NodeType.COLLECTIVE]), op_name="c10d::allreduce_",
        segment=np.array([Segment.ARRIVE, Segment.EXIT, None], dtype=object), family=str(OpFamily.COLLECTIVE),
        collective="all_reduce", rank=np.array([last["rank"], last["rank"], -1]), step=int(last["step"]),
        device=np.array([last["device"], last["device"], -1]), latency_us=np.array([0.0, 0.0, np.nan]),
    )  # fmt: skip
    return rows, np.repeat(unmeasured[:1], 3), kernels[-1:]


def _templates(graph: ExecutionGraph) -> Added:
    """Copies of the last all_reduce of every rank and step; it may wait for untraced ranks."""
    nodes = graph.nodes
    reduces = chosen(nodes, NodeType.COMM, collective="all_reduce", segment=Segment.ARRIVE)
    first, then = ends(graph, Relation.FOLLOWS)
    waits = reduces[first] & (nodes["segment"] == Segment.PEER_WAIT).to_numpy()[then]
    arrive_of = np.where(reduces, np.arange(len(nodes)), -1)
    arrive_of[then[waits]] = first[waits]
    part, transfer = ends(graph, Relation.JOINS)
    part, transfer = arrive_of[part][arrive_of[part] >= 0], transfer[arrive_of[part] >= 0]
    last = nodes.loc[part, ["rank", "step"]].assign(part=part, transfer=transfer).groupby(["rank", "step"]).last()
    if len(last) < len(graph.ranks):
        raise refusal(graph, "not every rank takes part in an all_reduce, so none can be copied for gradients",
                      "a run with tensor parallelism or another sum over ranks")  # fmt: skip
    parts, transfers = last["part"].to_numpy(), last["transfer"].to_numpy()
    origin = np.concatenate([np.stack([parts, parts + 1], axis=1).ravel(), transfers])
    return nodes.iloc[origin], origin, parts


def _gradient_bytes(graph: ExecutionGraph, rank: int, dtype: str) -> float:
    """Of the parameters that a rank updates in a step."""
    nodes = graph.nodes
    calls = chosen(nodes, NodeType.COMPUTE, phase=Phase.OPTIMIZER, rank=rank, step=graph.steps[0].step)
    table = nodes.loc[calls & nodes["input_dims"].notna().to_numpy(), ["op_name", "input_dims"]].astype(str)
    for name in ONCE:
        own = table["input_dims"][table["op_name"].str.contains(name, regex=False)]
        shapes = [shape for dims in own for shape in tensors(parse(dims)[0])]
        if shapes:
            return float(DTYPE_BYTES[dtype] * sum(map(prod, shapes)))
    raise refusal(graph, f"no op whose shapes show the parameters that rank {rank} updates",
                  "a step with an optimizer, recorded with record_shapes=True")  # fmt: skip


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


def _uneven(graph: ExecutionGraph, grows: np.ndarray) -> tuple[str, ...]:
    nodes = graph.nodes
    left = is_type(graph, NodeType.COLLECTIVE) & (nodes["group_stride"] < 1) & (nodes["group_size"] > 1) & ~grows
    counts = nodes.loc[left, "group_size"].value_counts()
    return tuple(OTHER_GROUPS.format(count, size) for size, count in counts.items())
