"""Exchange stretches of lanes for copies of other stretches, of whatever rank; and the joins after the exchange.

rank 0   .. [a a][b b] ..            .. [a a][c c] ..        c: copied from rank 1
rank 1   .. [c c][d d] ..     ->     .. [d d][b b] ..

Joins make a table's vectors whole: partial sums are added, columns are concatenated.

[B, D] + [B, D]   a table by row          cat([B, D/2], [B, D/2])   a table by column          nothing for a whole one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import numpy as np
import pandas as pd

from gnnperf.core import TIMED_RELATIONS, InputError, NodeType, Phase, Relation
from gnnperf.generate import Argument, Placement, Shape, Split, each, parse, text
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, consecutive, lane_keys
from gnnperf.whatif.costs import Cost, with_shapes
from gnnperf.whatif.edit import refusal
from gnnperf.whatif.reshard.units import LOOKUPS, Lane, Model


class Resize(Protocol):
    """How a call changes that is copied for something else."""

    def arguments(self, name: str, dims: str) -> tuple[Argument, ...]:
        """Its shapes."""
        ...

    def cost(self, name: str, dims: str, new: tuple[Argument, ...], recorded: Cost, dtype: str | None) -> Cost:
        """Its FLOPs and bytes."""
        ...


@dataclass(frozen=True)
class Copy:
    """Recorded nodes that are used once more."""

    nodes: np.ndarray  # [n] node ids
    resize: Resize | None  # what changes; None nothing


@dataclass(frozen=True)
class Change:
    """Nodes [begin, end) of a lane give way to copies; none if equal: then the copies come before `begin`."""

    begin: int
    end: int
    copies: tuple[Copy, ...]


def rewrite(graph: ExecutionGraph, changes: Sequence[Change]) -> tuple[ExecutionGraph, np.ndarray, np.ndarray]:
    """The graph with every stretch exchanged for its copies.

    `changes` do not overlap, each is on one host lane, in order. Returns the graph, [num_nodes] the node that each one
    is or copies, and [num_nodes] bool: which are copies. Raises InputError: what gives way waits for other lanes, or
    others for it.
    """
    pieces, home, at = [], [], 0
    for one in changes:
        lane = one.begin if one.end > one.begin else one.begin - 1
        sources = np.concatenate([np.zeros(0, dtype=np.int64), *(copy.nodes for copy in one.copies)])
        pieces += [np.arange(at, one.begin), sources]
        home += [np.full(one.begin - at, -1), np.full(len(sources), lane)]
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
    chain = EdgeList()
    chain.add(*consecutive(np.where(np.isin(lane, touched), lane, -1)), Relation.FOLLOWS)
    return concat_tables([left, chain.table(), _placed(nodes, is_copy)])


def _tied(what: str, graph: ExecutionGraph) -> InputError:
    return refusal(graph, f"calls that would move take part in {what}", "work done where it is called, as on a CPU",
                   "kernels on a GPU cannot be moved")  # fmt: skip


def _placed(nodes: pd.DataFrame, is_copy: np.ndarray) -> pd.DataFrame:
    """Copies of work run on the device of their rank."""
    works = np.flatnonzero(is_copy & (nodes["node_type"] == NodeType.COMPUTE).to_numpy())
    rank, device = nodes["rank"].to_numpy(), np.flatnonzero((nodes["node_type"] == NodeType.DEVICE).to_numpy())
    of_rank = dict(zip(rank[device].tolist(), device.tolist(), strict=True))
    result = EdgeList()
    result.add(works, np.array([of_rank[r] for r in rank[works].tolist()], dtype=np.int64), Relation.RUNS_ON)
    return result.table()


def resized(nodes: pd.DataFrame, is_copy: np.ndarray, changes: Sequence[Change]) -> tuple[pd.DataFrame, np.ndarray]:
    """The nodes of a rewritten graph with the shapes and costs of their copies; [num_nodes] bool: whose changed."""
    table = nodes[["op_name", "dtype", "input_dims"]].astype(object)
    names, dtypes, dims = (table[column].where(table[column].notna(), None).to_numpy(copy=True) for column in table)
    flops, moved = nodes["flops"].to_numpy(copy=True), nodes["bytes"].to_numpy(copy=True)
    changed, at = np.zeros(len(nodes), dtype=bool), iter(np.flatnonzero(is_copy).tolist())
    for change in changes:
        for copy in change.copies:
            for node in islice(at, len(copy.nodes)):
                if copy.resize is None or not isinstance(dims[node], str):
                    continue
                old, recorded = dims[node], Cost(flops[node], moved[node])
                new = copy.resize.arguments(str(names[node]), old)
                cost = copy.resize.cost(str(names[node]), old, new, recorded, dtypes[node])
                dims[node], flops[node], moved[node] = text(new), cost.flops, cost.bytes
                changed[node] = dims[node] != old or cost.bytes != recorded.bytes
    return nodes.assign(input_dims=pd.Categorical(dims), flops=flops, bytes=moved), changed


OP = {Split.ROW: "aten::add", Split.COLUMN: "aten::cat"}


@dataclass(frozen=True)
class Join:
    """Calls that make one table's vectors whole."""

    table: int  # number of the table
    split: Split  # how it is divided
    columns: int  # of each tensor that is joined
    shapes: tuple[tuple[Shape, ...], ...]  # of every call, in order


@dataclass(frozen=True)
class Widen:
    """Calls on [B, old] columns that now take [B, new]."""

    old: int
    new: int

    def arguments(self, name: str, dims: str) -> tuple[Argument, ...]:
        """Shapes of a call."""
        return tuple(
            each(a, lambda s: (s[0], self.new) if len(s) == 2 and s[1] == self.old else s) for a in parse(dims)
        )

    def cost(self, name: str, dims: str, new: tuple[Argument, ...], recorded: Cost, dtype: str | None) -> Cost:
        """FLOPs and bytes."""
        return with_shapes(name, parse(dims), new, recorded, dtype, self.new / self.old)


def join_changes(lanes: Sequence[Lane], model: Model, before: Placement, after: Placement) -> Iterator[Change]:
    """Joins of another placement in place of the recorded ones; none where a lane shows none in a row."""
    wanted, shown = joins(model, after), joins(model, before)
    for lane in lanes:
        results = _result(lane, shown)
        if not results:
            continue
        known = dict(zip([join.table for join in shown], zip(shown, results, strict=True), strict=True))
        copies = []
        for join in wanted:
            alike = [(other, calls) for other, calls in known.values() if other.split is join.split]
            if alike:
                other, calls = min(
                    alike, key=lambda one: (one[0].table != join.table, abs(one[0].columns - join.columns))
                )
                copies.append(Copy(_nodes(lane, calls), Widen(other.columns, join.columns)))
        yield Change(int(lane.first[results[0][0]]), int(lane.last[results[-1][-1]]) + 1, tuple(copies))


def joins(model: Model, placement: Placement) -> list[Join]:
    """In the order of the tables."""
    result = []
    for t, (table, placed) in enumerate(zip(model.tables, placement, strict=True)):
        number, batch = len(placed.ranks), model.batch
        if placed.split is Split.ROW:
            result.append(Join(t, Split.ROW, table.dim, (((batch, table.dim),) * 2,) * (number - 1)))
        elif placed.split is Split.COLUMN:
            columns = table.dim // number
            result.append(Join(t, Split.COLUMN, columns, (((batch, columns),) * number,)))
    return result


def _result(lane: Lane, shown: Sequence[Join]) -> list[list[int]]:
    """Calls of each join; none unless all are there, one right after the other."""
    expected = [(OP[join.split], shapes) for join in shown for shapes in join.shapes]
    begin = max(call for call, name in enumerate(lane.name) if name in LOOKUPS) + 1
    for at in range(begin, len(lane.name) - len(expected) + 1 if expected else begin):
        calls = range(at, at + len(expected))
        if all(
            (lane.name[c], lane.shapes[c]) == e and lane.phase[c] == Phase.FORWARD
            for c, e in zip(calls, expected, strict=True)
        ):
            ends = np.cumsum([len(join.shapes) for join in shown])
            return [[int(c) for c in part] for part in np.split(np.array(calls), ends[:-1])]
    return []


def _nodes(lane: Lane, calls: Sequence[int]) -> np.ndarray:
    return np.arange(lane.first[calls[0]], lane.last[calls[-1]] + 1)
