"""Put nodes in, take nodes out: the two operations that change which nodes a graph has; and an op that is repeated.

before   [T1|op A]-[T1|op B]-[T1|op C]                one lane
insert   [T1|op A]-[T1'|op B']-[T1|op B]-[T1|op C]
remove   [T1|op A]-[T1|op C]

Within a lane, node ids stay in order of execution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from gnnperf.core import TIMED_RELATIONS, Relation, require
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, consecutive, lane_keys, take
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.units import OpSelector, units


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
    cross_step = None if graph.cross_step is None else _cross_step_with_copies(graph.cross_step, unit, id_of)
    return replace(graph, nodes=nodes, edges=edges, cross_step=cross_step), came_from, is_copy


def _cross_step_with_copies(cross_step: np.ndarray, unit: np.ndarray, id_of: np.ndarray) -> np.ndarray:
    """[2, n] waits for the step before: a copy has those of its original, and no one waits for a copy."""
    copied = cross_step[:, unit[cross_step[1]] >= 0]
    parts = [np.stack([id_of[-1][copied[0]], copy[copied[1]]]) for copy in id_of[:-1]]
    return np.concatenate([*parts, id_of[-1][cross_step]], axis=1)


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


def remove(graph: ExecutionGraph, gone: np.ndarray) -> tuple[ExecutionGraph, np.ndarray]:
    """Take nodes out. What they waited for, the next node of their lane waits for; what waited for them, waits no more.

    `gone` [num_nodes] bool. Returns the graph, [num_nodes] the node that each one was.
    """
    heir = next_retained(lane_keys(graph.nodes), gone)  # [num_nodes]
    edges = graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    timed = edges["relation"].isin([str(r) for r in TIMED_RELATIONS]).to_numpy()
    inherited = timed & ~gone[src] & gone[dst] & (heir[dst] >= 0)
    moved = edges.assign(dst=np.where(inherited, heir[dst], dst), lag_us=edges["lag_us"].mask(inherited))
    nodes, left = take(graph.nodes, moved, ~gone)
    cross_step = None if graph.cross_step is None else _cross_step_without(graph.cross_step, gone, heir)
    return replace(graph, nodes=nodes, edges=left, cross_step=cross_step), np.flatnonzero(~gone)


def _cross_step_without(cross_step: np.ndarray, gone: np.ndarray, heir: np.ndarray) -> np.ndarray:
    """[2, n] waits for the step before, of the nodes that are left, by their new numbers."""
    awaited, waiting = cross_step[0], heir[cross_step[1]]
    retained = ~gone[awaited] & (waiting >= 0)
    new_id = np.cumsum(~gone) - 1  # [num_nodes]
    left: np.ndarray = new_id[np.stack([awaited[retained], waiting[retained]])]
    return left


def next_retained(lane: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """[num_nodes] itself if kept, else the next kept node of its lane; -1 none."""
    heir = np.where(gone, -1, np.arange(len(lane)))
    before, after = consecutive(lane)
    for node, following in zip(before[::-1].tolist(), after[::-1].tolist(), strict=True):
        if gone[node]:
            heir[node] = heir[following]
    return heir


# Calls of an op run several times in a row, the further times without effect on anything else.
#
# before   [T1|op]-[T1|next]
# after    [T1|op]-[T1|op]-[T1|op]-[T1|next]      times = 3

WARM = "whether copies run faster, on data that the run before has just touched"
LEFT = "what else copies leave behind: a warm cache, memory to be freed, work of a backward"
LAUNCHES = "how full a launch queue gets with {} times as many launches of it"


@dataclass(frozen=True)
class RepeatCalls:
    """Every selected call runs `times` times; the copies stand before the original, and take as long as it does.

    Attributes:
        op: name of the outermost op, e.g. aten::linear.
        times: 1 changes nothing.
        phase: forward, backward, optimizer; None any.
        rank: None all.
        input_dims: its input shapes as the graph has them (JSON); None any.
        calls: which of the calls that all else selects, counted from 0 on each rank in each step; None all.
    """

    op: str
    times: int
    phase: str | None = None
    rank: int | None = None
    input_dims: str | None = None
    calls: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        require(self.times >= 1, "times of a repeated op", self.times, "1 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        ranks = None if self.rank is None else (self.rank,)
        dims = None if self.input_dims is None else self.input_dims.replace(" ", "")
        selector = OpSelector(self.op, dims, self.phase, ranks, self.calls)
        edited, came_from, is_copy = insert_copies(graph, units(graph, selector), self.times - 1)
        queue = (LAUNCHES.format(self.times),) if graph.runs_on_gpu else ()
        return Edited(edited, is_copy, came_from, (WARM, LEFT, *queue) if self.times > 1 else ())
