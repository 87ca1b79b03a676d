"""Embedding tables stored as tensor trains: look-ups become chains of small products, memory falls.

before   [T1|embedding_bag [100000,32], [4096]]        one row read per index
after    [T1|remainder]-[T1|bmm]-[T1|bmm]-[T1|index_add]     rows are made: [4096,4,16] x [4096,16,64], ... x [.,16,2]

Yin et al. 2021, "TT-Rec: Tensor Train Compression for Deep Learning Recommendation Models". Their kernels read the rows
of the cores where they lie; nothing is gathered first.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from gnnperf.core import InputError, Phase, require
from gnnperf.generate import Argument, Shape, is_list, parse, tensors
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batch_sizes import op_of
from gnnperf.whatif.call_table import call_table
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.looked_up import BAGS, LOOKUPS, tables
from gnnperf.whatif.replaced_calls import NewCall, replace_calls
from gnnperf.whatif.train_shapes import Train, backward_calls, forward_calls, train_of

GRADIENTS = ("_embedding_bag_backward", "_embedding_bag_dense_backward", "_embedding_bag_sparse_backward",
             "embedding_backward", "embedding_dense_backward", "embedding_sparse_backward")  # fmt: skip
ACCURACY = "whether the model learns as well with tables of rank {}"
CACHED = "how much of the cores a cache holds: each look-up is taken to read its rows of them"
HELPERS = "which small ops around sparse gradients go: they stay, as messages of gradients of whole tables do"
WHICH = "which of the tables with {} columns a gradient belongs to: taken for the first"
FOUND = "table {} of {:.4g} MB becomes cores of {:.4g} MB: rows {}, columns {}, rank {}"
FLOAT_BYTES = 4.0


@dataclass(frozen=True)
class CompressTables:
    """Embedding tables become tensor trains of three cores.

    Attributes:
        rank: of the trains; more is more exact and slower.
        of: only tables of which a rank holds so many rows; None all.
    """

    rank: int
    of: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no rank."""
        require(self.rank >= 1, "rank of a tensor train", self.rank, "1 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Replace look-ups, their gradients and the updates of the tables.

        Raises:
            InputError: the graph has no such table, or a train of this rank is no smaller.
        """
        trains = {shape: self._train(graph, shape) for shape in sorted(tables(graph, self.of))}
        table, unit = call_table(graph)
        rows = table[table["input_dims"] != ""].to_dict("records")
        found = {int(row["unit"]): _becomes(row, trains) for row in rows}
        edited = replace_calls(graph, unit, {number: new for number, new in found.items() if new})
        columns = [shape[1] for shape in trains]
        doubtful = tuple(WHICH.format(one) for one in sorted(set(columns)) if columns.count(one) > 1)
        unknown = (ACCURACY.format(self.rank), CACHED, HELPERS, *doubtful)
        return replace(edited, unknown=unknown, found=tuple(_found(shape, train) for shape, train in trains.items()))

    def _train(self, graph: ExecutionGraph, shape: Shape) -> Train:
        train = train_of(shape, self.rank)
        if train.elements >= prod(shape):
            raise InputError(f"a train of rank {self.rank} has {train.elements} values, table {list(shape)} "
                             f"{prod(shape)}", where=f"graph {graph.name!r}", allowed="a smaller rank")  # fmt: skip
        return train


def _becomes(row: dict[Hashable, Any], trains: dict[Shape, Train]) -> list[NewCall]:
    """What a call becomes; nothing where it stays."""
    op, arguments = op_of(str(row["op_name"])), parse(str(row["input_dims"]))
    if op in LOOKUPS:
        train = trains.get(tensors(arguments[0])[0]) if tensors(arguments[0]) else None
        return [] if train is None else _forward(op, arguments, train)
    if op in GRADIENTS and row["num_works"]:
        columns = next((shape[-1] for argument in arguments for shape in tensors(argument)), 0)
        train = next((train for shape, train in trains.items() if shape[1] == columns), None)
        return [] if train is None else _calls(backward_calls(train, prod(tensors(arguments[1])[0])))
    return _update(str(row["op_name"]), arguments, trains) if row["phase"] == Phase.OPTIMIZER else []


def _forward(op: str, arguments: tuple[Argument, ...], train: Train) -> list[NewCall]:
    indices = tensors(arguments[1])[0]
    offsets = tensors(arguments[2]) if op in BAGS and len(arguments) > 2 else ()
    bags = None if op not in BAGS else offsets[0][0] if offsets and len(indices) == 1 else indices[0]
    return _calls(forward_calls(train, prod(indices), bags))


def _calls(calls: list[tuple[str, tuple[Argument, ...], float]]) -> list[NewCall]:
    """With bytes where no formula may tell them: all that is added is read, and read and written where it is added."""
    return [
        NewCall(name, shapes, flops, 3.0 * FLOAT_BYTES * flops, "int64" if name == "aten::remainder" else "float32")
        for name, shapes, flops in calls
    ]


def _update(name: str, arguments: tuple[Argument, ...], trains: dict[Shape, Train]) -> list[NewCall]:
    """An update of a table: of its cores, one after the other, or in the list in its place."""
    shapes = [shape for argument in arguments for shape in tensors(argument)]
    held = [shape for shape in shapes if shape in trains]
    if not held:
        return []
    if any(is_list(argument) for argument in arguments):
        return [NewCall(name, tuple(_listed(argument, trains) for argument in arguments))]
    return [
        NewCall(name, tuple(core if argument in trains else argument for argument in arguments),
                2.0 * prod(core), 3.0 * FLOAT_BYTES * prod(core))
        for core in trains[held[0]].cores
    ]  # fmt: skip


def _listed(argument: Argument, trains: dict[Shape, Train]) -> Argument:
    """A list of parameters with cores in place of tables."""
    if not is_list(argument):
        return argument
    return tuple(part for shape in tensors(argument)
                 for part in (trains[shape].cores if shape in trains else (shape,)))  # fmt: skip


def _found(shape: Shape, train: Train) -> str:
    held = [FLOAT_BYTES * values / 1e6 for values in (prod(shape), train.elements)]
    rows, columns = (" x ".join(map(str, factors)) for factors in (train.rows, train.columns))
    return FOUND.format(list(shape), *held, rows, columns, train.rank)
