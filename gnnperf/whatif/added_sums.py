"""All-reduces that a program does not have yet: copies of one that it has, in other groups.

before   |kernel|                                  |next kernel|
after    |kernel|arrive >[all_reduce]> exit        |next kernel|

The new parts are copies of an all_reduce of the same rank: its measured latency, scaled by the model's ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Phase, Relation, Segment
from gnnperf.generate import Shape, parse, restated, tensors
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, node_table
from gnnperf.hardware import Placement
from gnnperf.whatif.edit import ON_DEVICE, chosen, ends, is_type, refusal

# Ops of optimizers on every parameter once, the surest first: SGD multiplies its momentum once and adds twice.
ONCE = ("fused", "foreach_addcdiv", "addcdiv", "foreach_mul_", "mul_", "foreach_add", "add_")
NO_HOST = "what hosts and copies into buckets cost for it: no call is added"


@dataclass(frozen=True)
class Templates:
    """What new parts and transfers are copies of, for each rank and step.

    Attributes:
        rows: [3n] arrive and exit of each, then the transfers.
        origin: [3n] the nodes that they come from.
        anchors: [n] a node of the rank and step whose devices the new parts have.
    """

    rows: pd.DataFrame
    origin: np.ndarray
    anchors: np.ndarray


@dataclass(frozen=True)
class Sum:
    """One all-reduce of a rank."""

    template: int  # place among the templates
    message_bytes: float  # of the rank's part
    phase: Phase  # part of the step
    before: np.ndarray  # [n] nodes that it waits for
    after: np.ndarray  # [n] nodes that wait for it


def templates(graph: ExecutionGraph) -> Templates:
    """Of every rank and step of a graph.

    Raises:
        InputError: several ranks have no all-reduce, or one has no backward pass.
    """
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
    nodes = concat_tables([graph.nodes, like.rows.take(rows)])
    origin = np.concatenate([np.arange(graph.num_nodes), source])
    arrive, new = graph.num_nodes + 2 * np.arange(num), graph.num_nodes + np.arange(3 * num)
    added = np.arange(len(nodes)) >= graph.num_nodes
    which = np.r_[np.repeat(np.arange(num), 2), np.arange(num)]  # [3 num] sum of each new node
    rank = nodes["rank"].to_numpy()
    message, phase = (np.array([getattr(one, name) for one in sums], dtype=kind)[which]
                      for name, kind in (("message_bytes", float), ("phase", object)))  # fmt: skip
    columns: dict[str, tuple[np.ndarray | float, str]] = {
        "group_size": (size, "int32"), "group_stride": (stride, "int32"),
        "group_first": (rank[anchors][which], "int32"), "message_bytes": (message, "float64"),
        "flops": (np.nan, "float64"), "bytes": (np.nan, "float64"), "start_us": (np.nan, "float64"),
        "blocked_us": (0.0, "float64"),
    }  # fmt: skip
    phases, stream = nodes["phase"].astype(object).to_numpy(copy=True), nodes["stream"].to_numpy(copy=True)
    phases[new] = phase.astype(str)
    free = {one: int(stream[rank == one].max()) + 1 for one in graph.ranks}
    own = new[: 2 * num]
    stream[own] = [free[one] for one in rank[own].tolist()]
    changed = {name: nodes[name].to_numpy(copy=True) for name in columns}
    for name, (value, kind) in columns.items():
        changed[name] = changed[name].astype(kind)
        changed[name][new] = value
    nodes = nodes.assign(
        node_id=np.arange(len(nodes)), phase=pd.Categorical(phases), stream=stream,
        input_dims=nodes["input_dims"].where(~added),
        latency_us=nodes["latency_us"].mask(added & (rank < 0)), **changed,
    )  # fmt: skip
    edges = EdgeList()
    edges.add(arrive, graph.num_nodes + 2 * num + np.arange(num), Relation.JOINS)
    edges.add(graph.num_nodes + 2 * num + np.arange(num), arrive + 1, Relation.RELEASES)
    for place, one in enumerate(sums):
        edges.add(one.before, np.full(len(one.before), arrive[place]), Relation.WAITS, "event")
        edges.add(np.full(len(one.after), arrive[place] + 1), one.after, Relation.WAITS, "event")
    return (
        replace(graph, nodes=nodes, edges=_on_hardware(graph, edges, np.r_[np.repeat(anchors, 2), source[2 * num :]])),
        added,
        origin,
    )


def _on_hardware(graph: ExecutionGraph, edges: EdgeList, like: np.ndarray) -> pd.DataFrame:
    """All edges; new nodes have the devices and links of the nodes `like` [num_new]."""
    placed_ = graph.edges[graph.edges["relation"].isin([str(Relation.RUNS_ON), str(Relation.CROSSES)])]
    new = pd.DataFrame({"src": like, "new": graph.num_nodes + np.arange(len(like))})
    copies = placed_.merge(new, on="src").assign(src=lambda t: t["new"])[list(placed_)]
    return concat_tables([part for part in (graph.edges, edges.table(), copies.astype(placed_.dtypes)) if len(part)])


def updated(graph: ExecutionGraph, rank: int) -> list[Shape]:
    """Shapes of the parameters that a rank updates in a step.

    Raises:
        InputError: no op shows them.
    """
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
    """On so many ranks of the job."""
    placement, warnings = _placement(before, ranks), restated(edited.warnings, stands_for)
    return replace(edited, world_size=ranks, placement=placement, stands_for=stands_for, warnings=warnings).validate()


def _placement(graph: ExecutionGraph, ranks: int) -> Placement | None:
    """As many ranks on a machine as before; None: as many as the cluster has, where one machine of GPUs was enough."""
    before = graph.placement
    if before is None or (before.hosts == 1 and graph.runs_on_gpu):
        return None
    per_host = max(graph.world_size // before.hosts, 1)
    return Placement(-(-ranks // per_host), before.bandwidth_bytes_per_s, before.bucket_bytes)
