"""Where a recorded lane works for its tables: blocks of op calls, one unit per part of a table.

forward     [.. reshape lookup][.. mask, index, lookup][.. reshape lookup]      in the order of the tables
backward    [gradient of lookup, sparse tensor ..][..][..]                      the other way around
optimizer   [add_ of a sparse gradient][..][..]                                 in the order of the parameters
join        [add of partial sums][cat of columns]                               after the exchange, if at all

A unit is the calls up to a lookup, or from a gradient on. The first unit of a forward has no beginning of its own (and
the last of a backward no end): it is as long as another unit whose calls it begins (ends) with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

import numpy as np

from gnnperf.core import InputError, NodeType, Phase, Segment
from gnnperf.generate import Placed, Placement, Shape, Split, Table, parse
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batch_shapes import all_shapes
from gnnperf.whatif.edit import refusal

# What a rank holds of a table, and what it has to do for it: sizes that follow from a placement by itself.

INDEX_BYTES, VALUE_BYTES = 8.0, 4.0


@dataclass(frozen=True)
class Model:
    """Tables and who uses them."""

    tables: tuple[Table, ...]  # all of them
    ranks: int  # number of ranks; every rank has samples of its own
    batch: int  # samples per rank

    def parts(self, placement: Placement, rank: int) -> tuple[Part, ...]:
        """What a rank holds, in the order of the tables."""
        pairs = enumerate(zip(self.tables, placement, strict=True))
        return tuple(self._part(t, table, placed, rank) for t, (table, placed) in pairs if rank in placed.ranks)

    def _part(self, t: int, table: Table, placed: Placed, rank: int) -> Part:
        over, place = len(placed.ranks), placed.ranks.index(rank)
        rows, columns, lookups = table.rows, table.dim, self.batch * self.ranks * table.pooling
        if placed.split is Split.ROW:
            rows, lookups = ceil(rows / over), lookups * row_share(table, over, place)
        if placed.split is Split.COLUMN:
            columns //= over
        return Part(t, placed.split, rows, columns, lookups, table.pooling)

    def check(self, placement: Placement) -> None:
        """Refuse a placement of other tables, on ranks that are not there, of a kind that ops do not show, or uneven.

        Raises:
            InputError: names the table.
        """
        if len(placement) != len(self.tables):
            raise InputError(f"{len(placement)} places for {len(self.tables)} tables", where="a placement of tables",
                             allowed="one for each")  # fmt: skip
        for table, placed in zip(self.tables, placement, strict=True):
            where = f"the place of table {table.name!r}"
            if placed.split is Split.REPLICATED:
                raise InputError("a replicated table", where=where, allowed="table, row or column",
                                 remedy="the recording does not show the buckets of its gradients")  # fmt: skip
            if max(placed.ranks) >= self.ranks:
                raise InputError(f"rank {max(placed.ranks)}", where=where, allowed=f"0 to {self.ranks - 1}")
            if placed.split is Split.COLUMN and table.dim % len(placed.ranks):
                raise InputError(f"{table.dim} columns over {len(placed.ranks)} ranks", where=where,
                                 allowed="ranks that divide the columns")  # fmt: skip
        for rank in range(self.ranks):
            if not self.parts(placement, rank):
                raise InputError(
                    f"rank {rank} holds no table", where="a placement of tables", allowed="a part on every rank"
                )


@dataclass(frozen=True)
class Part:
    """What a rank holds of one table."""

    table: int  # number of the table
    split: Split  # how the table is divided
    rows: int  # rows, columns: that are here
    columns: int
    lookups: float  # rows that a step is expected to look up here, over the samples of all ranks
    pooling: float  # indices per sample


def row_share(table: Table, over: int, place: int) -> float:
    """Share of lookups that fall on rows i with i mod over = place; P(index <= i) = ((i + 1) / rows)**(1 / skew)."""
    below = (np.arange(table.rows + 1) / table.rows) ** (1.0 / table.skew)
    return float(np.diff(below)[place::over].sum())


@dataclass(frozen=True)
class Traffic:
    """Elements of one all-to-all: what each rank sends to and gets from each."""

    sent: np.ndarray  # [ranks, ranks] elements, from row to column

    def of_rank(self, rank: int) -> float:
        """Elements of the buffer that a rank sends, its own included."""
        return float(self.sent[rank].sum())

    @property
    def even(self) -> float:
        """Elements per rank of the even exchange that keeps the busiest rank as busy (gnnperf.graph.matching)."""
        ranks = len(self.sent)
        away = self.sent * (1.0 - np.eye(ranks))
        return float(max(away.sum(axis=0).max(), away.sum(axis=1).max())) * ranks / (ranks - 1)


def index_traffic(model: Model, placement: Placement) -> Traffic:
    """Indices: every rank sends those of its samples to whoever holds a part."""
    own = [model.batch * sum(part.pooling for part in model.parts(placement, rank)) for rank in range(model.ranks)]
    return Traffic(np.tile(np.array(own, dtype=float), (model.ranks, 1)))


def vector_traffic(model: Model, placement: Placement) -> Traffic:
    """Looked up vectors: every rank sends the columns it holds to the rank of each sample."""
    own = [model.batch * sum(part.columns for part in model.parts(placement, rank)) for rank in range(model.ranks)]
    return Traffic(np.tile(np.array(own, dtype=float)[:, None], (1, model.ranks)))


LOOKUPS = ("aten::embedding_bag", "aten::embedding")
GRADIENTS = ("aten::_embedding_bag_backward", "aten::embedding_backward")
UPDATE = "aten::add_"


class Block(StrEnum):
    """A stretch of a lane in which one unit after the other serves a part of a table."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True)
class Lane:
    """The calls of one step on the thread that looks up."""

    rank: int  # rank, step: whose
    step: int
    first: np.ndarray  # [num_calls] node id of the gap before each call (of the call itself where there is none)
    call: np.ndarray  # [num_calls] node id of its first own node; last: [num_calls] of its last
    last: np.ndarray
    name: tuple[str, ...]  # name, phase: [num_calls] of the op
    phase: tuple[str, ...]
    shapes: tuple[tuple[Shape, ...], ...]  # [num_calls] of its tensors, in order


@dataclass(frozen=True)
class Unit:
    """Calls [begin, end) of a lane that serve one part."""

    lane: Lane  # where
    part: Part  # what it serves
    begin: int  # begin, end: numbers of calls
    end: int
    head: bool  # whether it is the first of its block

    @property
    def names(self) -> tuple[str, ...]:
        """Of its ops."""
        return self.lane.name[self.begin : self.end]

    @property
    def nodes(self) -> np.ndarray:
        """[n] node ids, gaps included."""
        return np.arange(self.lane.first[self.begin], self.lane.last[self.end - 1] + 1)

    @property
    def has_gap(self) -> bool:
        """Whether its first node is the gap before it."""
        return bool(self.lane.first[self.begin] < self.lane.call[self.begin])

    @property
    def recorded_lookups(self) -> float | None:
        """Rows that its lookup or gradient takes, as the shapes say; None for an update."""
        for name, shapes in zip(self.names, self.lane.shapes[self.begin : self.end], strict=True):
            if name in (*LOOKUPS, *GRADIENTS):
                return float(np.prod(shapes[1]))
        return None


def lane_of(graph: ExecutionGraph, rank: int, step: int) -> Lane:
    """The calls of the thread that looks tables up.

    Raises InputError: no thread does, several do, or their nodes are not in a row.
    """
    nodes = graph.nodes
    mine = (nodes["rank"] == rank) & (nodes["step"] == step) & (nodes["thread"] >= 0)
    looks = mine & nodes["op_name"].isin(LOOKUPS) & (nodes["segment"] != Segment.T1)
    threads = sorted(set(nodes["thread"][looks]))
    if len(threads) != 1:
        raise refusal(graph, f"lookups on {len(threads)} threads of rank {rank}", "one thread, with a call per table")
    ids = np.flatnonzero((mine & (nodes["thread"] == threads[0])).to_numpy())
    if len(ids) != ids[-1] - ids[0] + 1:
        raise refusal(graph, f"calls of rank {rank} are not in a row", "a recorded graph")
    return _calls(graph, rank, step, ids)


def _calls(graph: ExecutionGraph, rank: int, step: int, ids: np.ndarray) -> Lane:
    nodes = graph.nodes.iloc[ids]
    gap = (nodes["segment"] == Segment.T1).to_numpy()
    opens = ~gap & np.r_[True, gap[:-1] | (nodes["node_type"] == NodeType.COMPUTE).to_numpy()[1:]]
    calls = np.flatnonzero(opens)
    first = np.where(np.r_[False, gap][calls], calls - 1, calls)
    last = np.r_[first[1:] - 1, len(ids) - 1]
    texts = nodes["input_dims"].astype(object).iloc[calls]
    shapes = tuple(tuple(all_shapes(parse(text))) if isinstance(text, str) else () for text in texts)
    names, phases = (tuple(map(str, nodes[column].iloc[calls])) for column in ("op_name", "phase"))
    return Lane(rank, step, ids[first], ids[calls], ids[last], names, phases, shapes)


Blocks = dict[Block, list[list[Unit]]]  # per lane, its units in the order they run


def blocks(lanes: Sequence[Lane], parts: Sequence[Sequence[Part]]) -> Blocks:
    """Of lanes of one step, one per rank, with what each of these ranks holds.

    Raises InputError: a rank looks up, differentiates or updates other tables than it holds.
    """
    finders = {Block.FORWARD: _forward, Block.BACKWARD: _backward, Block.UPDATE: _updates}
    rough = {block: [units(*pair) for pair in zip(lanes, parts, strict=True)] for block, units in finders.items()}
    whole = {unit.names for units in rough[Block.FORWARD] for unit in units[1:]}
    rough[Block.FORWARD] = [[_cut(units[0], whole, at_end=True), *units[1:]] for units in rough[Block.FORWARD]]
    whole = {unit.names for units in rough[Block.BACKWARD] for unit in units[:-1]}
    rough[Block.BACKWARD] = [[*units[:-1], _cut(units[-1], whole, at_end=False)] for units in rough[Block.BACKWARD]]
    return rough


def _forward(lane: Lane, held: Sequence[Part]) -> list[Unit]:
    at = [c for c, name in enumerate(lane.name) if name in LOOKUPS]
    _same_tables(lane, [lane.shapes[c][0] for c in at], held, "looks up")
    begins = [0, *(c + 1 for c in at[:-1])]
    return [Unit(lane, part, b, c + 1, i == 0) for i, (part, b, c) in enumerate(zip(held, begins, at, strict=True))]


def _backward(lane: Lane, held: Sequence[Part]) -> list[Unit]:
    at = [c for c, name in enumerate(lane.name) if name in GRADIENTS]
    reverse = list(held)[::-1]
    columns = [(part.columns,) for part in reverse]
    _same_tables(lane, [lane.shapes[c][0][-1:] for c in at], columns, "has gradients of")
    ends = [*at[1:], len(lane.name)]
    return [Unit(lane, part, c, e, i == 0) for i, (part, c, e) in enumerate(zip(reverse, at, ends, strict=True))]


def _updates(lane: Lane, held: Sequence[Part]) -> list[Unit]:
    sizes = {(part.rows, part.columns) for part in held}
    updates = [c for c, name in enumerate(lane.name) if name == UPDATE and lane.phase[c] == Phase.OPTIMIZER]
    at = [c for c in updates if lane.shapes[c] and lane.shapes[c][0] in sizes]
    _same_tables(lane, [lane.shapes[c][0] for c in at], held, "updates")
    return [Unit(lane, part, c, c + 1, i == 0) for i, (part, c) in enumerate(zip(held, at, strict=True))]


def _same_tables(lane: Lane, result: Sequence[Shape], held: Sequence[Part | Shape], does: str) -> None:
    expected = [(part.rows, part.columns) if isinstance(part, Part) else part for part in held]
    if list(result) != expected:
        raise InputError(f"rank {lane.rank} {does} {_listed(result)}", where="the recorded placement",
                         allowed=f"{_listed(expected)}, as the tables are said to be placed")  # fmt: skip


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes) or "nothing"


def _cut(unit: Unit, whole: set[tuple[str, ...]], *, at_end: bool) -> Unit:
    """The unit with as many calls as the longest unit of `whole` whose calls it ends (begins) with."""
    calls = len(unit.names)
    starts = {names: calls - len(names) if at_end else 0 for names in whole}
    fits = [len(names) for names, start in starts.items() if unit.names[start : start + len(names)] == names]
    if not fits:
        raise InputError(f"nothing shows which calls serve table {unit.part.table} on rank {unit.lane.rank}",
                         where="the recorded placement", allowed="a second part of that kind on some rank")  # fmt: skip
    begin, end = (unit.end - max(fits), unit.end) if at_end else (unit.begin, unit.begin + max(fits))
    return replace(unit, begin=begin, end=end)
