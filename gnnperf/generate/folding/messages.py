"""What a larger group does to its messages and to what is sharded over it.

n ranks, message_bytes = bytes of one rank's input (schema.NODE_COLUMNS)

all_reduce, reduce_scatter, broadcast, reduce    the whole gradient or parameter: the same
all_gather of parameters (FSDP, ZeRO)            one rank's shard of the whole: 1/n
all_to_all                                       what a rank looked up for everybody: the same, in n parts
optimizer on shards, copies into a gather        1/n
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Phase
from gnnperf.generate.shapes import Shape, each, is_list, parse, text
from gnnperf.graph import ExecutionGraph

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
