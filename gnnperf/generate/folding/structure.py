"""A graph taken apart by ranks: what each rank has by itself, and where ranks meet.

rank 0   a0 - a1 -.        own edges a0 -> a1, b0 -> b1
                   >[c]    meeting edges a1 -> c, b1 -> c
rank 1   b0 - b1 -'        places a0 = b0 = 0, a1 = b1 = 1
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph, content_keys
from gnnperf.hardware import machines_of

# What predictors see of a node, less who it belongs to. Labels, row numbers, ranks and device ordinals are not here.
CONTENT = (
    "node_type", "step", "thread", "stream", "op_name", "event_name", "segment", "phase", "family", "dtype",
    "input_dims", "ordinal", "num_siblings", "flops", "bytes", "message_bytes", "group_size", "group_stride",
    "collective",
)  # fmt: skip
EDGE_LABEL = ("relation", "evidence", "lag_class")
GRAPH_LAUNCH = " kernels]"  # end of the name of a launched graph, which states how many kernels it holds
SHARED = -1


@dataclass(frozen=True)
class Structure:
    """Nodes by rank, and edges as arrays."""

    num_ranks: int  # ranks in the graph
    owner: np.ndarray  # [num_nodes] position of the node's rank in `graph.ranks`; SHARED for collectives and links
    place: np.ndarray  # [num_nodes] number of the node among its rank's; SHARED for shared ones
    content: np.ndarray  # [num_nodes] uint64, equal for nodes that predictors cannot tell apart
    meets: np.ndarray  # [num_nodes] bool, transfers: what ranks meet in
    # src, dst: [num_edges] node ids, those of `graph.cross_step` included
    src: np.ndarray
    dst: np.ndarray
    label: np.ndarray  # [num_edges] uint64, equal for edges of equal relation, evidence and lag class


def structure_of(graph: ExecutionGraph, ranks_per_node: int | None) -> Structure:
    """The structure of a graph."""
    at = {rank: position for position, rank in enumerate(graph.ranks)}
    rank, inverse = np.unique(graph.nodes["rank"].to_numpy(), return_inverse=True)
    owner = np.array([at.get(int(r), SHARED) for r in rank], dtype=np.int64)[inverse]
    cross_step = np.zeros((2, 0), dtype=np.int64) if graph.cross_step is None else graph.cross_step
    src, dst = (graph.edges[end].to_numpy() for end in ("src", "dst"))
    label = content_keys(graph.edges, EDGE_LABEL).view(np.uint64)
    return Structure(
        num_ranks=len(graph.ranks),
        owner=owner,
        place=np.where(owner == SHARED, SHARED, places_among(owner)),
        content=_content(graph.nodes, ranks_per_node),
        meets=(graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy(),
        src=np.concatenate([src, cross_step[0]]),
        dst=np.concatenate([dst, cross_step[1]]),
        label=np.concatenate([label, np.ones(cross_step.shape[1], dtype=np.uint64)]),
    )


def seen(nodes: pd.DataFrame) -> pd.DataFrame:
    """The columns of CONTENT. Of a kernel's name predictors see no more than how many kernels a graph launch holds."""
    names = nodes["event_name"].astype(object).where(nodes["event_name"].notna(), "")
    hidden = (nodes["node_type"] == NodeType.COMPUTE).to_numpy() & ~names.str.endswith(GRAPH_LAUNCH).to_numpy(bool)
    return nodes[list(CONTENT)].assign(event_name=pd.Categorical(names.mask(hidden, "")))


def _content(nodes: pd.DataFrame, ranks_per_node: int | None) -> np.ndarray:
    result = content_keys(seen(nodes), CONTENT).view(np.uint64)
    if ranks_per_node is None:
        return result
    size, first, stride = (nodes[column].to_numpy() for column in ("group_size", "group_first", "group_stride"))
    return mixed(result, machines_of(size, first, stride, ranks_per_node))


def places_among(group: np.ndarray) -> np.ndarray:
    """[n] number of each member of a group [n] among those of its group, in order."""
    return pd.Series(group).groupby(group).cumcount().to_numpy()


def mixed(*parts: np.ndarray) -> np.ndarray:
    """[n] uint64 hash of arrays [n] of whole numbers, in order (splitmix64: Steele, Lea, Flood 2014)."""
    result = np.zeros(1, dtype=np.uint64)
    for part in parts:
        result = result * np.uint64(0x9E3779B97F4A7C15) + np.asarray(part).astype(np.uint64)
        result = (result ^ (result >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result ^= result >> np.uint64(31)
    return result


def summed(values: np.ndarray, where: np.ndarray, count: int) -> np.ndarray:
    """[count] uint64 sums of hashes `values` [n] at `where` [n]: the hash of a multiset."""
    result = np.zeros(count, dtype=np.uint64)
    np.add.at(result, where, values)
    return result
