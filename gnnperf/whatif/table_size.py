"""Embedding tables with more or fewer rows: the same look-ups in larger or smaller tables.

before   embedding_bag [100000,32], [4096]    dense gradient [100000,32]    fused update [100000,32]
after    embedding_bag [400000,32], [4096]    dense gradient [400000,32]    fused update [400000,32]

What is looked up stays; what touches every row (a dense gradient and its update) grows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, OpFamily, Phase, require
from gnnperf.generate import Argument, Shape, each, is_list, parse, tensors
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph, TableCounts
from gnnperf.whatif.batch_sizes import WHOLE, op_of
from gnnperf.whatif.distinct_calls import DistinctCall, change_calls
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.recost import DENSE_GRADIENTS, Cost, added_rows, with_shapes

# Embedding tables of a graph, found by the ops that look rows up in them.

LOOKUPS = ("embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
BAGS = LOOKUPS[1:]


def lookups(nodes: pd.DataFrame) -> dict[str, tuple[Argument, ...]]:
    """Shapes as text -> arguments, of every distinct call that looks up rows."""
    of_tables = (nodes["family"] == OpFamily.EMBEDDING) & nodes["input_dims"].notna()
    table = nodes.loc[of_tables, ["op_name", "input_dims"]].astype(str).drop_duplicates()
    return {dims: parse(dims) for name, dims in table.itertuples(index=False) if op_of(name) in LOOKUPS}


def tables(graph: ExecutionGraph, rows: int | None) -> frozenset[Shape]:
    """Shapes [rows, columns] of the tables that are looked up; `rows`: only of so many rows.

    Raises:
        InputError: there is none.
    """
    result = {tensors(arguments[0])[0] for arguments in lookups(graph.nodes).values() if tensors(arguments[0])}
    chosen = frozenset(shape for shape in result if len(shape) == 2 and rows in (None, shape[0]))
    if not chosen:
        known = ", ".join(sorted(str(shape[0]) for shape in result))
        raise InputError("no embedding table" + (f" of {rows} rows" if rows else ""), where=f"graph {graph.name!r}",
                         allowed=known or "a program that looks up rows of tables, with shapes of inputs")  # fmt: skip
    return chosen


COUNTED = "how often a row is looked up again in a table of another size: as was counted"
UNCOUNTED = "how often a row is looked up again in a table of another size, and what a cache holds of it"
MESSAGES = "whether gradients of whole tables are sent: messages stay"
FOUND = "tables {} become {}; {:.4g} MB of float32 become {:.4g} MB"


@dataclass(frozen=True)
class ResizeTables:
    """Embedding tables have more or fewer rows.

    Attributes:
        factor: new rows / old rows, of what each rank holds of a table.
        of: only tables of which a rank holds so many rows; None all.
    """

    factor: float
    of: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no factor."""
        require(self.factor > 0, "factor of tables", self.factor, "above 0")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Change shapes and costs; recorded latencies of work on these tables become unknown.

        Raises:
            InputError: no such table, or its rows do not stay whole.
        """
        result = tables(graph, self.of)
        sizes: dict[Shape, Shape] = {shape: (self._rows(shape[0]), shape[1]) for shape in result}
        changed = change_calls(graph.nodes, partial(_answer, sizes))
        works = changed.grown & (graph.nodes["node_type"] != NodeType.HOST).to_numpy()
        nodes = changed.nodes.assign(latency_us=changed.nodes["latency_us"].mask(works))
        counted = tuple(self._counted(one, sizes) for one in graph.tables)
        edited = replace(graph, nodes=nodes, tables=counted)
        unknown = (COUNTED if graph.tables else UNCOUNTED, MESSAGES)
        return Edited(edited, changed.grown, np.arange(graph.num_nodes), unknown, result=(_result(sizes),))

    def _rows(self, rows: int) -> int:
        wanted = rows * self.factor
        if abs(wanted - max(round(wanted), 1)) > WHOLE * wanted:
            raise InputError(f"{rows} x {self.factor:g} is no whole number of rows", where="factor of tables",
                             allowed=f"a factor that keeps {rows} whole")  # fmt: skip
        return max(round(wanted), 1)

    def _counted(self, counts: TableCounts, sizes: dict[Shape, Shape]) -> TableCounts:
        """Counts of a whole table, of which ranks may hold rows or columns."""
        holds = any(counts.rows % shape[0] == 0 and counts.dim % shape[1] == 0 for shape in sizes)
        return replace(counts, rows=round(counts.rows * self.factor)) if holds else counts


def _answer(sizes: dict[Shape, Shape], call: DistinctCall) -> tuple[tuple[Argument, ...], Cost, float] | None:
    """New shapes and cost of a call on a table; None: another one."""
    if op_of(call.name) in DENSE_GRADIENTS:
        return _dense_gradient(sizes, call)
    new = tuple(each(argument, lambda shape: sizes.get(shape, shape)) for argument in call.arguments)
    if new == call.arguments:
        return None
    growth = max(b[0] / a[0] for a, b in sizes.items())
    if _sparse(call):
        return new, call.recorded, growth
    cost = with_shapes(call.name, call.arguments, new, call.recorded, call.dtype, 1.0, call.num_siblings)
    return new, cost, growth


def _sparse(call: DistinctCall) -> bool:
    """A sparse gradient added to its table: what it costs is the rows that were looked up (graph.op_costs)."""
    return call.family == OpFamily.EMBEDDING and call.phase == Phase.OPTIMIZER and not is_list(call.arguments[0])


def _dense_gradient(sizes: dict[Shape, Shape], call: DistinctCall) -> tuple[tuple[Argument, ...], Cost, float] | None:
    """Of the table with so many columns and bytes: it is zeroed, whatever is looked up."""
    columns = next((shape[-1] for argument in call.arguments for shape in tensors(argument)), 0)
    item = DTYPE_BYTES.get(call.dtype or "float32", 4)
    zeroed = call.recorded.bytes * call.num_siblings - added_rows(call.arguments, call.dtype)
    for old, new in sizes.items():
        if old[1] == columns and abs(zeroed / (old[0] * old[1] * item) - 1.0) < WHOLE:
            moved = call.recorded.bytes + (new[0] - old[0]) * columns * item / call.num_siblings
            return call.arguments, Cost(call.recorded.flops, moved), new[0] / old[0]
    return None


def _result(sizes: dict[Shape, Shape]) -> str:
    old, new = (", ".join(str(list(shape)) for shape in shapes) for shapes in (sizes, sizes.values()))
    held = [sum(rows * columns * 4.0 / 1e6 for rows, columns in shapes) for shapes in (sizes, sizes.values())]
    return FOUND.format(old, new, *held)
