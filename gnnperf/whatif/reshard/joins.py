"""What makes a table's vectors whole after the exchange: partial sums added, columns put side by side.

[B, D] + [B, D]   a table by row          cat([B, D/2], [B, D/2])   a table by column          nothing for a whole one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import pandas as pd

from gnnperf.core import Phase
from gnnperf.generate import Argument, Placement, Split, each, parse, text
from gnnperf.whatif.recost import Cost, with_shapes
from gnnperf.whatif.reshard.rewrite import Stretch
from gnnperf.whatif.reshard.units import LOOKUPS, Lane, Model, Shape

# Copies of recorded calls that get the shapes, FLOPs and bytes of what they are used for now.


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
    """Recorded nodes that are used once more.

    Attributes:
        nodes: [n] node ids.
        resize: what changes; None nothing.
    """

    nodes: np.ndarray
    resize: Resize | None


@dataclass(frozen=True)
class Change:
    """Nodes [begin, end) of a lane give way to copies."""

    begin: int
    end: int
    copies: tuple[Copy, ...]

    @property
    def stretch(self) -> Stretch:
        """For the rewriting of lanes."""
        sources = [np.zeros(0, dtype=np.int64), *(copy.nodes for copy in self.copies)]
        return Stretch(self.begin, self.end, np.concatenate(sources))


def resized(nodes: pd.DataFrame, is_copy: np.ndarray, changes: Sequence[Change]) -> tuple[pd.DataFrame, np.ndarray]:
    """The nodes of a rewritten graph with the shapes and costs of their copies; [num_nodes] bool: whose changed."""
    table = nodes[["op_name", "dtype", "input_dims"]].astype(object)
    names, dtypes, dims = (table[column].where(table[column].notna(), None).to_numpy(copy=True) for column in table)
    flops, moved = nodes["flops"].to_numpy(copy=True), nodes["bytes"].to_numpy(copy=True)
    changed, at = np.zeros(len(nodes), dtype=bool), iter(np.flatnonzero(is_copy).tolist())
    for change in sorted(changes, key=lambda c: c.begin):
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
    """Calls that make one table's vectors whole.

    Attributes:
        table: number of the table.
        split: how it is divided.
        columns: of each tensor that is joined.
        shapes: of every call, in order.
    """

    table: int
    split: Split
    columns: int
    shapes: tuple[tuple[Shape, ...], ...]


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
