"""Where a recorded lane works for its tables: blocks of op calls, one unit per part of a table.

forward     [.. reshape lookup][.. mask, index, lookup][.. reshape lookup]      in the order of the tables
backward    [gradient of lookup, sparse tensor ..][..][..]                      the other way around
optimizer   [add_ of a sparse gradient][..][..]                                 in the order of the parameters
join        [add of partial sums][cat of columns]                               after the exchange, if at all

A unit is the calls up to a lookup, or from a gradient on. The first unit of a forward has no beginning of its own (and
the last of a backward no end): it is as long as another unit whose calls it begins (ends) with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gnnperf.core import InputError, Phase, Segment
from gnnperf.generate import parse, tensors
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.reshard.parts import Part

LOOKUPS = ("aten::embedding_bag", "aten::embedding")
GRADIENTS = ("aten::_embedding_bag_backward", "aten::embedding_backward")
UPDATE = "aten::add_"
Shape = tuple[int, ...]


class Block(StrEnum):
    """A stretch of a lane in which one unit after the other serves a part of a table."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True)
class Lane:
    """The calls of one step on the thread that looks up.

    Attributes:
        rank, step: whose.
        first: [num_calls] node id of the gap before each call (of the call itself where there is none).
        call: [num_calls] node id of its first own node; last: [num_calls] of its last.
        name, phase: [num_calls] of the op.
        shapes: [num_calls] of its tensors, in order.
    """

    rank: int
    step: int
    first: np.ndarray
    call: np.ndarray
    last: np.ndarray
    name: tuple[str, ...]
    phase: tuple[str, ...]
    shapes: tuple[tuple[Shape, ...], ...]


@dataclass(frozen=True)
class Unit:
    """Calls [begin, end) of a lane that serve one part.

    Attributes:
        lane: where.
        part: what it serves.
        begin, end: numbers of calls.
        head: whether it is the first of its block.
    """

    lane: Lane
    part: Part
    begin: int
    end: int
    head: bool

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

    Raises:
        InputError: no thread does, several do, or their nodes are not in a row.
    """
    nodes = graph.nodes
    mine = (nodes["rank"] == rank) & (nodes["step"] == step) & (nodes["thread"] >= 0)
    looks = mine & nodes["op_name"].isin(LOOKUPS) & (nodes["segment"] != Segment.T1)
    threads = sorted(set(nodes["thread"][looks]))
    if len(threads) != 1:
        raise InputError(
            f"lookups on {len(threads)} threads of rank {rank}",
            where=f"graph {graph.name!r}",
            allowed="one thread, with a call per table",
        )
    ids = np.flatnonzero((mine & (nodes["thread"] == threads[0])).to_numpy())
    if len(ids) != ids[-1] - ids[0] + 1:
        raise InputError(
            f"calls of rank {rank} are not in a row", where=f"graph {graph.name!r}", allowed="a recorded graph"
        )
    return _calls(graph, rank, step, ids)


def _calls(graph: ExecutionGraph, rank: int, step: int, ids: np.ndarray) -> Lane:
    nodes = graph.nodes.iloc[ids]
    gap = (nodes["segment"] == Segment.T1).to_numpy()
    opens = ~gap & np.r_[True, gap[:-1] | (nodes["node_type"] == "compute").to_numpy()[1:]]
    calls = np.flatnonzero(opens)
    first = np.where(np.r_[False, gap][calls], calls - 1, calls)
    last = np.r_[first[1:] - 1, len(ids) - 1]
    texts = nodes["input_dims"].astype(object).iloc[calls]
    shapes = tuple(_tensors(text) for text in texts)
    names, phases = (tuple(map(str, nodes[column].iloc[calls])) for column in ("op_name", "phase"))
    return Lane(rank, step, ids[first], ids[calls], ids[last], names, phases, shapes)


def _tensors(text: object) -> tuple[Shape, ...]:
    if not isinstance(text, str):
        return ()
    return tuple(tuple(shape) for argument in parse(text) for shape in tensors(argument))


Blocks = dict[Block, list[list[Unit]]]  # per lane, its units in the order they run


def blocks(lanes: Sequence[Lane], parts: Sequence[Sequence[Part]]) -> Blocks:
    """Block -> per lane, its units in the order they run.

    Args:
        lanes: of one step, one per rank.
        parts: what each of these ranks holds.

    Raises:
        InputError: a rank looks up, differentiates or updates other tables than it holds.
    """
    rough = {
        Block.FORWARD: [_forward(lane, held) for lane, held in zip(lanes, parts, strict=True)],
        Block.BACKWARD: [_backward(lane, held) for lane, held in zip(lanes, parts, strict=True)],
        Block.UPDATE: [_updates(lane, held) for lane, held in zip(lanes, parts, strict=True)],
    }
    whole = {unit.names for units in rough[Block.FORWARD] for unit in units[1:]}
    rough[Block.FORWARD] = [[_cut_begin(units[0], whole), *units[1:]] for units in rough[Block.FORWARD]]
    whole = {unit.names for units in rough[Block.BACKWARD] for unit in units[:-1]}
    rough[Block.BACKWARD] = [[*units[:-1], _cut_end(units[-1], whole)] for units in rough[Block.BACKWARD]]
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


def _cut_begin(unit: Unit, whole: set[tuple[str, ...]]) -> Unit:
    fits = [names for names in whole if unit.names[len(unit.names) - len(names) :] == names]
    return _cut(unit, fits, lambda length: (unit.end - length, unit.end))


def _cut_end(unit: Unit, whole: set[tuple[str, ...]]) -> Unit:
    fits = [names for names in whole if unit.names[: len(names)] == names]
    return _cut(unit, fits, lambda length: (unit.begin, unit.begin + length))


def _cut(unit: Unit, fits: Sequence[tuple[str, ...]], span: Callable[[int], tuple[int, int]]) -> Unit:
    if not fits:
        raise InputError(f"nothing shows which calls serve table {unit.part.table} on rank {unit.lane.rank}",
                         where="the recorded placement", allowed="a second part of that kind on some rank")  # fmt: skip
    begin, end = span(max(map(len, fits)))
    return Unit(unit.lane, unit.part, begin, end, unit.head)
