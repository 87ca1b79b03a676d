"""All-reduces that a program does not have yet: copies of one that it has, in other groups.

before   |kernel|                                  |next kernel|
after    |kernel|arrive >[all_reduce]> exit        |next kernel|

The new parts are copies of an all_reduce of the same rank: its measured latency, scaled by the model's ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Phase, Relation, Segment
from gnnperf.generate import Shape, parse, tensors
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, node_table
from gnnperf.whatif.edit import ON_DEVICE, chosen, ends, is_type, refusal

# Ops of optimizers on every parameter once, the surest first: SGD multiplies its momentum once and adds twice.
ONCE = ("fused", "foreach_addcdiv", "addcdiv", "foreach_mul_", "mul_", "foreach_add", "add_")
NO_HOST = "what hosts and copies into buckets cost for it: no call is added"


@dataclass(frozen=True)
class Templates:
    """What new parts and transfers are copies of, for each rank and step."""

    rows: pd.DataFrame  # [3n] arrive and exit of each, then the transfers
    origin: np.ndarray  # [3n] the nodes that they come from
    anchors: np.ndarray  # [n] a node of the rank and step whose devices the new parts have


@dataclass(frozen=True)
class Sum:
    """One all-reduce of a rank."""

    template: int  # place among the templates
    message_bytes: float  # of the rank's part
    phase: Phase  # part of the step
    before: np.ndarray  # [n] nodes that it waits for
    after: np.ndarray  # [n] nodes that wait for it


def templates(graph: ExecutionGraph) -> Templates:
    """Of every rank and step of a graph. Raises InputError: several ranks have no all-reduce, or one no backward."""
    return _recorded(graph) if graph.world_size > 1 else _unmeasured(graph)


def _unmeasured(graph: ExecutionGraph) -> Templates:
    """Of a run on one device, which has no sum to copy: the model predicts it, as it came from no measured node."""
    nodes, kernels = graph.nodes, np.flatnonzero(chosen(graph.nodes, *ON_DEVICE, phase=Phase.BACKWARD))
    unmeasured = np.flatnonzero(is_type(graph, NodeType.DEVICE))
    if not len(kernels) or not len(unmeasured):
        raise refusal(graph, "no backward pass", "a training step")
    last = nodes.iloc[kernels].assign(node=kernels).groupby(["rank", "step"]).last().reset_index()
    n, part, ends_ = len(last), NodeType.COMM, [Segment.ARRIVE, Segment.EXIT]
    step, device = (
        np.r_[np.repeat(last[name], 2), own] for name, own in (("step", last["step"]), ("device", [-1] * n))
    )
    rows = node_table(
        3 * n, node_type=np.repeat([part, NodeType.COLLECTIVE], [2 * n, n]), op_name="c10d::allreduce_",
        segment=np.array([*ends_ * n, *[None] * n], dtype=object), family=str(OpFamily.COLLECTIVE),
        collective="all_reduce", rank=np.r_[np.repeat(last["rank"], 2), np.full(n, -1)],
        device=device, step=step,
        latency_us=np.r_[np.zeros(2 * n), np.full(n, np.nan)],
    )  # fmt: skip
    return Templates(rows, np.repeat(unmeasured[:1], 3 * n), last["node"].to_numpy())


def _recorded(graph: ExecutionGraph) -> Templates:
    """The last all_reduce of every rank and step; it may wait for untraced ranks."""
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
        raise refusal(graph, "not every rank takes part in an all_reduce, so none can be copied",
                      "a run with tensor parallelism or another sum over ranks")  # fmt: skip
    parts, transfers = last["part"].to_numpy(), last["transfer"].to_numpy()
    origin = np.concatenate([np.stack([parts, parts + 1], axis=1).ravel(), transfers])
    return Templates(nodes.iloc[origin], origin, parts)


def with_sums(
    graph: ExecutionGraph, like: Templates, sums: Sequence[Sum], size: int, stride: int
) -> tuple[ExecutionGraph, np.ndarray, np.ndarray]:
    """(graph with one group's all-reduce for each sum, [num_nodes] whether a node is new, where it comes from).

    Each rank of the graph is the first of its own group of `size` ranks, `stride` apart.
    """
    of = np.array([one.template for one in sums])
    num, first_transfer = len(of), 2 * len(like.anchors)
    rows = np.r_[np.stack([2 * of, 2 * of + 1], axis=1).ravel(), first_transfer + of]
    source, anchors = like.origin[rows], like.anchors[of]
    which = np.r_[np.repeat(np.arange(num), 2), np.arange(num)]  # [3 num] sum of each new node
    rank, stream = (graph.nodes[name].to_numpy() for name in ("rank", "stream"))
    free = {one: int(stream[rank == one].max()) + 1 for one in graph.ranks}
    phase = np.array([str(one.phase) for one in sums], dtype=object)
    own, is_part = like.rows.take(rows), np.arange(3 * num) < 2 * num
    own = own.assign(
        phase=pd.Categorical(phase[which]), group_first=rank[anchors][which],
        group_size=size, group_stride=stride, message_bytes=np.array([one.message_bytes for one in sums])[which],
        stream=np.where(is_part, np.array([free[one] for one in rank[anchors].tolist()])[which], own["stream"]),
        input_dims=own["input_dims"].mask(which >= 0), latency_us=own["latency_us"].where(is_part),
        flops=np.nan, bytes=np.nan, start_us=np.nan, blocked_us=0.0,
    ).astype({name: kind for name, kind in graph.nodes.dtypes.items() if kind.kind in "if"})  # fmt: skip
    nodes = concat_tables([graph.nodes, own]).assign(node_id=lambda table: np.arange(len(table)))
    origin = np.concatenate([np.arange(graph.num_nodes), source])
    added = np.arange(len(nodes)) >= graph.num_nodes
    arrive, transfer = graph.num_nodes + 2 * np.arange(num), graph.num_nodes + 2 * num + np.arange(num)
    edges = EdgeList()
    edges.add(arrive, transfer, Relation.JOINS)
    edges.add(transfer, arrive + 1, Relation.RELEASES)
    for place, one in enumerate(sums):
        edges.add(one.before, np.full(len(one.before), arrive[place]), Relation.WAITS, "event")
        edges.add(np.full(len(one.after), arrive[place] + 1), one.after, Relation.WAITS, "event")
    # New nodes have the devices and links of the rank's node, and of the copied transfer.
    devices = graph.edges[graph.edges["relation"].isin([str(Relation.RUNS_ON), str(Relation.CROSSES)])]
    whose = np.r_[np.repeat(anchors, 2), source[2 * num :]]
    copies = devices.merge(pd.DataFrame({"src": whose, "new": graph.num_nodes + np.arange(3 * num)}), on="src")
    copies = copies.assign(src=copies["new"])[list(devices)].astype(devices.dtypes)
    every = concat_tables([part for part in (graph.edges, edges.table(), copies) if len(part)])
    return replace(graph, nodes=nodes, edges=every), added, origin


def updated(graph: ExecutionGraph, rank: int) -> list[Shape]:
    """Shapes of the parameters that a rank updates in a step. Raises InputError: no op shows them."""
    nodes = graph.nodes
    calls = chosen(nodes, NodeType.COMPUTE, phase=Phase.OPTIMIZER, rank=rank, step=graph.steps[0].step)
    table = nodes.loc[calls & nodes["input_dims"].notna().to_numpy(), ["op_name", "input_dims"]].astype(str)
    for name in ONCE:
        own = table["input_dims"][table["op_name"].str.contains(name, regex=False)]
        shapes = [shape for dims in own for shape in tensors(parse(dims)[0])]
        if shapes:
            return shapes
    raise refusal(graph, f"no op whose shapes show the parameters that rank {rank} updates",
                  "a step with an optimizer, recorded with record_shapes=True")  # fmt: skip


def placed(edited: ExecutionGraph, before: ExecutionGraph, ranks: int, stands_for: tuple[int, ...]) -> ExecutionGraph:
    """On so many ranks of the job: on a machine as many as before, or as the cluster has where one of GPUs sufficed."""
    placement = before.placement
    if placement is not None and placement.hosts == 1 and before.runs_on_gpu:
        placement = None
    if placement is not None:
        placement = replace(placement, core_sets=(),
                            hosts=-(-ranks // max(before.world_size // placement.hosts, 1)))  # fmt: skip
    return replace(edited, world_size=ranks, placement=placement, stands_for=stands_for).validate()
