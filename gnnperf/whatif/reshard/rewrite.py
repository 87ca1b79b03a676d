"""Exchange stretches of lanes for copies of other stretches, of whatever rank.

rank 0   .. [a a][b b] ..            .. [a a][c c] ..        c: copied from rank 1
rank 1   .. [c c][d d] ..     ->     .. [d d][b b] ..
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import TIMED_RELATIONS, InputError, NodeType, Relation
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, consecutive, lane_keys


@dataclass(frozen=True)
class Stretch:
    """Nodes [begin, end) of one lane give way to copies of others.

    Attributes:
        begin, end: node ids in a row; none if equal: then the copies come before `begin`.
        sources: [n] node ids to copy, in order.
    """

    begin: int
    end: int
    sources: np.ndarray


def rewrite(graph: ExecutionGraph, stretches: Sequence[Stretch]) -> tuple[ExecutionGraph, np.ndarray, np.ndarray]:
    """The graph with every stretch exchanged.

    Args:
        graph: a window or one step.
        stretches: that do not overlap, each on one host lane.

    Returns:
        the graph; [num_nodes] the node that each one is or copies; [num_nodes] bool: which are copies.

    Raises:
        InputError: what gives way waits for other lanes, or others for it.
    """
    pieces, home, at = [], [], 0
    for one in sorted(stretches, key=lambda s: s.begin):
        lane = one.begin if one.end > one.begin else one.begin - 1
        pieces += [np.arange(at, one.begin), one.sources]
        home += [np.full(one.begin - at, -1), np.full(len(one.sources), lane)]
        at = one.end
    origin = np.concatenate([*pieces, np.arange(at, graph.num_nodes)])
    lane_of = np.concatenate([*home, np.full(graph.num_nodes - at, -1)])  # a node of the lane that a copy goes to
    is_copy = lane_of >= 0
    nodes = graph.nodes.iloc[origin].reset_index(drop=True)
    moved = {name: np.where(is_copy, graph.nodes[name].to_numpy()[lane_of], nodes[name].to_numpy())
             for name in ("rank", "thread")}  # fmt: skip
    nodes = nodes.assign(**moved, node_id=np.arange(len(origin)), start_us=nodes["start_us"].mask(is_copy))
    retained = np.full(graph.num_nodes, -1, dtype=np.int64)
    retained[origin[~is_copy]] = np.flatnonzero(~is_copy)
    edges = _edges(graph, retained, nodes, is_copy)
    return replace(graph, nodes=nodes, edges=edges, cross_step=_cross_step(graph, retained)), origin, is_copy


def _cross_step(graph: ExecutionGraph, retained: np.ndarray) -> np.ndarray | None:
    """Waits for the step before, by new numbers; `retained` [num_nodes]: -1 gives way."""
    if graph.cross_step is None:
        return None
    result: np.ndarray = retained[graph.cross_step]
    if (result < 0).any():
        raise _tied("a wait for the step before", graph)
    return result


def _edges(graph: ExecutionGraph, retained: np.ndarray, nodes: pd.DataFrame, is_copy: np.ndarray) -> pd.DataFrame:
    edges = graph.edges
    src, dst = retained[edges["src"].to_numpy()], retained[edges["dst"].to_numpy()]
    stays = (src >= 0) & (dst >= 0)
    follows = (edges["relation"] == Relation.FOLLOWS).to_numpy()
    others = ~stays & ~follows & edges["relation"].isin([str(r) for r in TIMED_RELATIONS]).to_numpy()
    if others.any():
        raise _tied(str(edges["relation"][others].iloc[0]), graph)
    lane = lane_keys(nodes)
    touched = np.unique(lane[is_copy])
    again = follows & stays & np.isin(lane[np.maximum(src, 0)], touched)
    left = edges[stays & ~again].assign(src=src[stays & ~again], dst=dst[stays & ~again])
    return concat_tables([left, _chain(np.where(np.isin(lane, touched), lane, -1)), _placed(nodes, is_copy)])


def _tied(what: str, graph: ExecutionGraph) -> InputError:
    return InputError(f"calls that would move take part in {what}", where=f"graph {graph.name!r}",
                      allowed="work done where it is called, as on a CPU",
                      remedy="kernels on a GPU cannot be moved yet")  # fmt: skip


def _chain(lane: np.ndarray) -> pd.DataFrame:
    """Order on host lanes."""
    result = EdgeList()
    result.add(*consecutive(lane), Relation.FOLLOWS)
    return result.table()


def _placed(nodes: pd.DataFrame, is_copy: np.ndarray) -> pd.DataFrame:
    """Copies of work run on the device of their rank."""
    works = np.flatnonzero(is_copy & (nodes["node_type"] == NodeType.COMPUTE).to_numpy())
    rank, device = nodes["rank"].to_numpy(), np.flatnonzero((nodes["node_type"] == NodeType.DEVICE).to_numpy())
    of_rank = dict(zip(rank[device].tolist(), device.tolist(), strict=True))
    result = EdgeList()
    result.add(works, np.array([of_rank[r] for r in rank[works].tolist()], dtype=np.int64), Relation.RUNS_ON)
    return result.table()
