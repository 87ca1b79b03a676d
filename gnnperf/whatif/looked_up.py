"""Embedding tables of a graph, found by the ops that look rows up in them."""

from __future__ import annotations

import pandas as pd

from gnnperf.core import InputError, OpFamily
from gnnperf.generate import Argument, Shape, parse, tensors
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batch_sizes import op_of

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
    found = {tensors(arguments[0])[0] for arguments in lookups(graph.nodes).values() if tensors(arguments[0])}
    chosen = frozenset(shape for shape in found if len(shape) == 2 and rows in (None, shape[0]))
    if not chosen:
        known = ", ".join(sorted(str(shape[0]) for shape in found))
        raise InputError("no embedding table" + (f" of {rows} rows" if rows else ""), where=f"graph {graph.name!r}",
                         allowed=known or "a program that looks up rows of tables, with shapes of inputs")  # fmt: skip
    return chosen
