"""Which groups of a graph are data-parallel: those that grow with the number of replicas.

8 ranks    tensor 2 x pipeline 2 x data 2      rank = tensor + 2 (data + 2 pipeline)
groups     0 1 | 2 3 | ...   size 2, stride 1       of a replica: stays
           0 2 | 1 3 | ...   size 2, stride 2       data-parallel: grows
           0 4 | 1 5 | ...   size 2, stride 4       of a replica, around the replicas: moves apart
           0 .. 7            size 8, stride 1       holds whole data-parallel groups: grows
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Phase
from gnnperf.generate.shapes import Shape, each, is_list, parse, text
from gnnperf.graph import ExecutionGraph

SUMS = ("all_reduce", "reduce_scatter")
OF_LAYERS = ("all_reduce", "send_recv", "send", "recv")
SETTING = "data_parallel"


@dataclass(frozen=True)
class Replicas:
    """The data-parallel groups of a graph: ranks first + stride i, i below count."""

    count: int  # ranks of such a group
    stride: int  # distance of neighbors

    @property
    def block(self) -> int:
        """Ranks from the first of a block of such groups to the next block."""
        return self.count * self.stride

    def moved(self, rank: np.ndarray, factor: Fraction) -> np.ndarray:
        """[n] numbers of ranks [n] where there are `factor` as many replicas."""
        inside = rank % self.block
        new_block = int(self.block * factor)
        return rank // self.block * new_block + np.minimum(inside, new_block - 1)

    def hold(self, size: np.ndarray, stride: np.ndarray) -> np.ndarray:
        """[n] bool: groups that hold whole data-parallel groups."""
        fine = (stride > 0) & (stride <= self.stride)
        return fine & (self.stride % np.maximum(stride, 1) == 0) & (size * np.maximum(stride, 1) >= self.block)


def find_replicas(graph: ExecutionGraph, count: int | None) -> Replicas:
    """The data-parallel groups.

    The kind that sums gradients: most bytes of sums after the forward pass. What sums or sends as much within it
    belongs to layers (tensor, pipeline). `count`: ranks of a data-parallel group; None: found.

    Raises:
        InputError: no group, or nothing shows which.
    """
    transfers = _transfers(graph)
    pairs = transfers[["group_size", "group_stride"]].drop_duplicates().to_numpy().tolist()
    kinds = [(int(size), int(stride)) for size, stride in pairs]
    if not kinds:
        raise InputError("has no collectives, so nothing grows with its ranks", where=f"graph {graph.name!r}",
                         remedy="record two ranks or more, or state the model as a plan")  # fmt: skip
    if count is not None:
        kinds = [kind for kind in kinds if kind[0] == count]
        if not kinds:
            raise _unclear(graph, transfers, f"no group of {count} ranks")
    if count is None or len(kinds) > 1:
        kinds = [_heaviest(graph, transfers, kinds)]
    size, stride = kinds[0]
    if stride < 1 and size < graph.world_size:
        raise InputError(f"where the ranks of its groups of {size} are is not known", where=f"graph {graph.name!r}",
                         remedy="record all ranks")  # fmt: skip
    return Replicas(size, max(stride, 1))


def _transfers(graph: ExecutionGraph) -> pd.DataFrame:
    nodes = graph.nodes
    chosen = (nodes["node_type"] == NodeType.COLLECTIVE) & (nodes["group_size"] > 1)
    result = nodes.loc[chosen, ["collective", "op_name", "phase", "group_size", "group_stride", "message_bytes"]]
    return result.assign(**{name: result[name].astype(str) for name in ("collective", "op_name", "phase")})


def _heaviest(graph: ExecutionGraph, transfers: pd.DataFrame, kinds: list[tuple[int, int]]) -> tuple[int, int]:
    weight = {}
    for size, stride in kinds:
        own = transfers[(transfers["group_size"] == size) & (transfers["group_stride"] == stride)]
        forward = own["phase"] == Phase.FORWARD
        scatters = own["op_name"].str.contains("reduce_scatter", regex=False)  # gloo sums and drops
        later = own[~forward & own["collective"].isin(SUMS)]
        layers = own[forward & own["collective"].isin(OF_LAYERS) & ~scatters]
        if len(later) and 2 * _amount(layers) <= _amount(later):
            weight[size, stride] = _amount(later)
    if not weight:
        raise _unclear(graph, transfers, "which groups are data-parallel is not clear")
    return max(weight, key=lambda kind: weight[kind])


def _amount(transfers: pd.DataFrame) -> float:
    """Bytes, where they are known, and a little for each message."""
    return float(transfers["message_bytes"].fillna(0.0).sum()) + len(transfers)


def _unclear(graph: ExecutionGraph, transfers: pd.DataFrame, what: str) -> InputError:
    sizes = [str(size) for size in sorted(transfers["group_size"].unique())]
    return InputError(what, where=f"graph {graph.name!r}", allowed=f"{SETTING}: one of {', '.join(sizes)}, or 1: none",
                      remedy=f"say how many ranks a data-parallel group has now, as in {SETTING}: {sizes[0]}; groups "
                      "of layers (tensor, pipeline) cannot grow, as nothing shows what they would hold")  # fmt: skip


# What a larger group does to its messages and to what is sharded over it.
#
# n ranks, message_bytes = bytes of one rank's input (schema.NODE_COLUMNS)
#
# all_reduce, reduce_scatter, broadcast, reduce    the whole gradient or parameter: the same
# all_gather of parameters (FSDP, ZeRO)            one rank's shard of the whole: 1/n
# all_to_all                                       what a rank looked up for everybody: the same, in n parts
# optimizer on shards, copies into a gather        1/n

REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL = "reduce_scatter", "all_gather", "all_to_all"
OF_SHARDS = ("fsdp::all_gather_copy_in",)  # reads and writes one rank's shard
WORK = (NodeType.COMPUTE, NodeType.MEMORY)
KEPT_KINDS = ("gather", "scatter")
SIZES = ("flops", "bytes", "message_bytes")


def is_sharded(graph: ExecutionGraph, grows: np.ndarray) -> bool:
    """Whether gradients end as shards: a reduce-scatter over groups that grow, [num_nodes] bool.

    Its op shows, as gloo makes an all-reduce of it.
    """
    nodes = graph.nodes[grows]
    scattered = nodes["op_name"].astype(str).str.contains(REDUCE_SCATTER, regex=False)
    return bool((scattered | (nodes["collective"] == REDUCE_SCATTER)).any())


def shard_messages(graph: ExecutionGraph, grows: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: parts and transfers whose message is one rank's shard of something whole."""
    return grows & (graph.nodes["collective"] == ALL_GATHER).to_numpy() & is_sharded(graph, grows)


def shard_work(graph: ExecutionGraph, grows: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: kernels, copies and ops on a rank's shard of parameters."""
    nodes = graph.nodes
    works = nodes["node_type"].isin([str(t) for t in WORK]) & nodes["step"].ge(0)
    own = (nodes["phase"] == Phase.OPTIMIZER) | nodes["op_name"].isin(OF_SHARDS)
    return (works & own).to_numpy() & is_sharded(graph, grows)


def smaller(nodes: pd.DataFrame, chosen: np.ndarray, factor: float) -> pd.DataFrame:
    """Nodes `chosen` [num_nodes] bool with `factor` of their FLOPs and bytes; shapes by their first dimension."""
    result = {name: np.where(chosen, nodes[name] * factor, nodes[name]) for name in SIZES}
    dims = nodes["input_dims"].astype(object)
    shard = chosen & nodes["input_dims"].notna().to_numpy() & (nodes["node_type"] != NodeType.COMM).to_numpy()
    cut = {old: _cut(old, factor) for old in dims[shard].unique()}
    return nodes.assign(**result, input_dims=pd.Categorical(dims.where(~shard, dims.map(cut))))


def _cut(dims: str, factor: float) -> str:
    """Sharded over its first dimension, rounded up, as FSDP2 does (torch.chunk).

    A tensor next to lists of tensors is what they are copied into: whole.
    """
    arguments = parse(dims)
    listed = any(map(is_list, arguments))

    def shard(shape: Shape) -> Shape:
        return (max(math.ceil(shape[0] * factor), 1), *shape[1:]) if shape else shape

    return text(tuple(a if listed and not is_list(a) else each(a, shard) for a in arguments))


def doubts(graph: ExecutionGraph, grows: np.ndarray) -> Iterator[str]:
    """What no one can tell about messages and shards of groups that grow."""
    nodes = graph.nodes[grows & (graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()]
    kinds, sharded = set(nodes["collective"].dropna().astype(str)), is_sharded(graph, grows)
    if sharded:
        yield "how shards that do not divide evenly are padded: they are taken to shrink as their groups grow"
    if ALL_GATHER in kinds and not sharded:
        yield "whether all-gathers hold a share of something whole: one rank's part stays as it is"
    if ALL_TO_ALL in kinds:
        yield ("what a rank holds of what all-to-alls exchange (tables, experts): each looks up and sends as many "
               "rows in all as now, to more ranks")  # fmt: skip
    if kinds & set(KEPT_KINDS):
        yield "whether gathers and scatters grow: one rank's part stays as it is"
    if unsized := int(nodes["message_bytes"].isna().sum()):
        yield f"how many bytes {unsized} messages of larger groups have"
