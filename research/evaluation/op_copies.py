"""Calls of an op that are selected by name, shapes and order; and copies of them in the graph.

before   [T1|op A]-[T1|op B]-[T1|op C]                one lane
insert   [T1|op A]-[T1'|op B']-[T1|op B]-[T1|op C]

Within a lane, node ids stay in order of execution.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, lane_keys
from gnnperf.whatif.edit import chosen, is_type, refusal
from gnnperf.whatif.units import host_units, with_launched


@dataclass(frozen=True)
class OpSelector:
    """Which calls of an op."""

    op: str  # name of the outermost op, e.g. aten::linear.
    input_dims: str | None = None  # its input shapes as the graph has them (JSON); None any
    phase: str | None = None  # forward, backward, optimizer; None any
    ranks: Sequence[int] | None = None  # None all
    # which of the calls that all else selects, counted from 0 on each rank in each step; None all
    ordinals: Sequence[int] | None = None

    def names(self, nodes: pd.DataFrame) -> np.ndarray:
        """[num_nodes] bool: nodes within (not between) such calls; `ordinals` aside, which take a whole graph."""
        fits = chosen(nodes, op_name=self.op, input_dims=self.input_dims, phase=self.phase)
        fits &= (nodes["segment"] != Segment.T1).to_numpy()
        return fits if self.ranks is None else fits & nodes["rank"].isin(list(self.ranks)).to_numpy()

    def __str__(self) -> str:
        lists = (("ranks", self.ranks), ("ordinals", self.ordinals))
        limits = [f"{name} {', '.join(map(str, numbers))}" for name, numbers in lists if numbers is not None]
        return " ".join([self.op, *(one for one in (self.input_dims, self.phase) if one is not None), *limits])


def units(graph: ExecutionGraph, selector: OpSelector) -> np.ndarray:
    """[num_nodes] number of the selected op call that each node belongs to, in order of execution; -1 none.

    Raises InputError: no such call, or it is a collective (whose peers would have to take part).
    """
    host = host_units(graph)
    selected = selector.names(graph.nodes) & (host >= 0)
    if selector.ordinals is not None:
        selected &= np.isin(_ordinal(graph, host, selected), list(selector.ordinals))
    if not selected.any():
        known = sorted({str(n) for n in graph.nodes.loc[graph.nodes["node_type"] == NodeType.COMPUTE, "op_name"]})
        raise refusal(graph, f"no call of {selector}", f"an op of the graph, e.g. {', '.join(known[:12])}")
    result = with_launched(graph, np.where(np.isin(host, np.unique(host[selected])), host, -1))
    if (is_type(graph, NodeType.COMM) & (result >= 0)).any():
        raise InputError(f"{selector} is a collective", where="an op to repeat", allowed="an op of one rank")
    return result


def _ordinal(graph: ExecutionGraph, unit: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """[num_nodes] number of the selected call among those of its rank and step, in order of execution; -1 none."""
    calls = graph.nodes.loc[selected, ["rank", "step"]].assign(unit=unit[selected])
    calls = calls.drop_duplicates("unit").sort_values("unit")
    ordinal_of = pd.Series(calls.groupby(["rank", "step"]).cumcount().to_numpy(), index=calls["unit"])
    result = np.full(graph.num_nodes, -1, dtype=np.int64)
    result[selected] = ordinal_of.loc[unit[selected]].to_numpy()
    return result


def insert_copies(
    graph: ExecutionGraph, unit: np.ndarray, copies: int
) -> tuple[ExecutionGraph, np.ndarray, np.ndarray]:
    """Put `copies` copies of every unit right before it; each lane runs them one after another.

    A copy waits for whatever its original waits for. Nothing outside waits for a copy: the original comes later.

    `unit` [num_nodes]: number of the unit (an op call) of each node; -1 none. Returns the graph, [num_nodes] the node
    that each one is or copies, [num_nodes] bool: which are copies.
    """
    lane, inside = lane_keys(graph.nodes), np.flatnonzero(unit >= 0)
    head = np.arange(graph.num_nodes)  # the first node of a node's unit in its lane
    head[inside] = pd.Series(inside).groupby([unit[inside], lane[inside]]).transform("min").to_numpy()
    origin = np.concatenate([np.tile(inside, copies), np.arange(graph.num_nodes)])
    number = np.concatenate([np.repeat(np.arange(copies), len(inside)), np.full(graph.num_nodes, copies)])
    order = np.lexsort((origin, number, np.where(number < copies, head[origin], origin)))
    id_of = np.full((copies + 1, graph.num_nodes), -1, dtype=np.int64)  # by copy and node; the last row: originals
    id_of[number[order], origin[order]] = np.arange(len(order))
    came_from, is_copy = origin[order], (number < copies)[order]
    nodes = graph.nodes.iloc[came_from].reset_index(drop=True)
    nodes = nodes.assign(node_id=np.arange(len(nodes)), start_us=nodes["start_us"].mask(is_copy),
                         blocked_us=nodes["blocked_us"].mask(is_copy, 0.0))  # fmt: skip
    edges = _edges_with_copies(graph, unit, lane, head, id_of) if copies else graph.edges
    cross_step = graph.cross_step
    if cross_step is not None:  # a copy has the waits of its original for the step before, and no one waits for a copy
        copied = cross_step[:, unit[cross_step[1]] >= 0]
        parts = [np.stack([id_of[-1][copied[0]], copy[copied[1]]]) for copy in id_of[:-1]]
        cross_step = np.concatenate([*parts, id_of[-1][cross_step]], axis=1)
    return replace(graph, nodes=nodes, edges=edges, cross_step=cross_step), came_from, is_copy


def _edges_with_copies(
    graph: ExecutionGraph, unit: np.ndarray, lane: np.ndarray, head: np.ndarray, id_of: np.ndarray
) -> pd.DataFrame:
    edges, original = graph.edges, id_of[-1]
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    relation = edges["relation"]
    within = (unit[src] >= 0) & (unit[src] == unit[dst])
    in_lane = (relation == Relation.FOLLOWS).to_numpy() & (lane[src] == lane[dst])
    entering = in_lane & ~within & (unit[dst] >= 0) & (head[dst] == dst)  # comes to the first copy, not the original
    into = ~in_lane & ~within & (unit[dst] >= 0)
    placed = relation.isin([Relation.RUNS_ON, Relation.CROSSES]).to_numpy() & (unit[src] >= 0)
    parts = [edges.assign(src=original[src], dst=np.where(entering, id_of[0][dst], original[dst]))]
    for copy in id_of[:-1]:
        parts += [
            edges[within].assign(src=copy[src[within]], dst=copy[dst[within]]),
            edges[into].assign(src=original[src[into]], dst=copy[dst[into]]),
            edges[placed].assign(src=copy[src[placed]], dst=original[dst[placed]]),
        ]
    parts.append(_chain(unit, lane, head, id_of))
    return concat_tables([part for part in parts if len(part)])


def _chain(unit: np.ndarray, lane: np.ndarray, head: np.ndarray, id_of: np.ndarray) -> pd.DataFrame:
    """In each lane: the end of a copy -> the beginning of the next, the last copy -> the original."""
    inside = np.flatnonzero((unit >= 0) & (lane >= 0))
    tail = pd.Series(inside).groupby(head[inside]).max()  # first node -> last node
    first, last = tail.index.to_numpy(), tail.to_numpy()
    on_device = lane[first] % 2 == 1
    edges = EdgeList()
    for before, after in pairwise(id_of):
        edges.add(before[last[~on_device]], after[first[~on_device]], Relation.FOLLOWS)
        edges.add(before[last[on_device]], after[first[on_device]], Relation.FOLLOWS, "stream")
    return edges.table()
