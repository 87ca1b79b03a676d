"""Embedding tables stored as tensor trains: look-ups become chains of small products, memory falls.

before   [T1|embedding_bag [100000,32], [4096]]        one row read per index
after    [T1|remainder]-[T1|bmm]-[T1|bmm]-[T1|index_add]     rows are made: [4096,4,16] x [4096,16,64], ... x [.,16,2]

Yin et al. 2021, "TT-Rec: Tensor Train Compression for Deep Learning Recommendation Models". Their kernels read the rows
of the cores where they lie; nothing is gathered first.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Phase, Segment, require
from gnnperf.generate import Argument, Shape, is_list, parse, tensors, text
from gnnperf.graph import ExecutionGraph, op_cost
from gnnperf.whatif.batch_shapes import all_shapes, op_of
from gnnperf.whatif.costs import PROFILER_NAME
from gnnperf.whatif.edit import Edited, refusal
from gnnperf.whatif.graph_rewrite import insert_copies
from gnnperf.whatif.table_size import BAGS, LOOKUPS, tables
from gnnperf.whatif.units import call_table

# A table as a tensor train: how rows and columns are factored, and what a look-up multiplies.
#
# [100000, 32]   rows 47 x 47 x 46, columns 4 x 4 x 2, rank 16:  [47, 4 x 16]  [47, 16 x 4 x 16]  [46, 16 x 2]
#
# Oseledets 2011, "Tensor-Train Decomposition"; Yin et al. 2021, "TT-Rec: Tensor Train Compression for Deep Learning
# Recommendation Models", sections 2 and 3.


@dataclass(frozen=True)
class NewCall:
    """One call."""

    name: str  # of the op
    arguments: tuple[Argument, ...]  # its shapes
    flops: float = float("nan")  # flops, bytes: without a formula; NaN unknown
    bytes: float = float("nan")
    dtype: str = "float32"  # of its tensors

    def cost(self) -> tuple[str, float, float]:
        """(family, FLOPs, bytes): by formula, else as given."""
        own = PROFILER_NAME[self.dtype]
        kinds = [own if argument and not is_list(argument) else "" for argument in self.arguments]
        result = op_cost(self.name, text(self.arguments), json.dumps(kinds), None)
        family = str(result.family) if result.family != OpFamily.UNKNOWN else str(OpFamily.INDEXING)
        flops = self.flops if np.isnan(result.flops) else result.flops
        return family, flops, self.bytes if np.isnan(result.bytes) else result.bytes


FLOAT_BYTES = 4.0


def _adds(name: str, arguments: tuple[Argument, ...], added: int, flops: float | None = None) -> NewCall:
    """A call that adds `added` values: each is read, and read and written where it is added."""
    return NewCall(name, arguments, float(added) if flops is None else flops, 3.0 * FLOAT_BYTES * added)


@dataclass(frozen=True)
class Train:
    """The factors of one table."""

    rows: tuple[int, int, int]  # [3] their product is the table's rows, or a little more
    columns: tuple[int, int, int]  # [3] their product is the table's columns
    rank: int  # between neighbors

    @property
    def cores(self) -> tuple[Shape, Shape, Shape]:
        """[rows of a core, values of a row] of each."""
        (a, b, c), (x, y, z), rank = self.rows, self.columns, self.rank
        return (a, x * rank), (b, rank * y * rank), (c, rank * z)

    @property
    def elements(self) -> int:
        """Parameters in all."""
        return sum(prod(core) for core in self.cores)


def train_of(table: Shape, rank: int) -> Train:
    """Factors as near to each other as they get: rows rounded up, columns exact."""
    rows, columns = table
    first = ceil_root(rows, 3)
    second = ceil_root(-(-rows // first), 2)
    return Train((first, second, -(-rows // (first * second))), _exact(columns), rank)


def ceil_root(number: int, degree: int) -> int:
    """The least whole number whose power is at least `number`."""
    result = round(number ** (1.0 / degree))
    while result**degree < number:
        result += 1
    while result > 1 and (result - 1) ** degree >= number:
        result -= 1
    return result


def _exact(columns: int) -> tuple[int, int, int]:
    """Three factors of a number, the largest first, their sum the least."""
    triples = [
        (a, b, columns // (a * b))
        for a in range(1, columns + 1) if columns % a == 0
        for b in range(1, a + 1) if columns // a % b == 0 and columns // (a * b) <= b
    ]  # fmt: skip
    return min(triples, key=sum)


def forward_calls(train: Train, looked_up: int, bags: int | None) -> list[NewCall]:
    """A look-up as indices into the cores, two batched products, the sum of a bag's rows."""
    (x, y, z), rank = train.columns, train.rank
    columns = prod(train.columns)
    products = [((looked_up, x, rank), (looked_up, rank, y * rank)), ((looked_up, x * y, rank), (looked_up, rank, z))]
    calls = [_indices(looked_up), *(NewCall("aten::bmm", factors, 0.0, 0.0) for factors in products)]
    if bags is not None:
        shapes: tuple[Argument, ...] = ((bags, columns), (), (looked_up,), (looked_up, columns))
        calls.append(_adds("aten::index_add", shapes, looked_up * columns))
    return calls


def backward_calls(train: Train, looked_up: int) -> list[NewCall]:
    """The first product again (TT-Rec keeps none), two products for each, gradients added to the rows of the cores."""
    (x, y, z), rank = train.columns, train.rank
    products = [
        ((looked_up, x, rank), (looked_up, rank, y * rank)),
        ((looked_up, rank, x * y), (looked_up, x * y, z)),
        ((looked_up, x * y, z), (looked_up, z, rank)),
        ((looked_up, rank, x), (looked_up, x, y * rank)),
        ((looked_up, x, y * rank), (looked_up, y * rank, rank)),
    ]
    added = [_adds("aten::index_add", (core, (), (looked_up,), (looked_up, core[1])), looked_up * core[1])
             for core in train.cores]  # fmt: skip
    return [_indices(looked_up), *(NewCall("aten::bmm", factors, 0.0, 0.0) for factors in products), *added]


def _indices(looked_up: int) -> NewCall:
    """Indices of rows as indices into the cores."""
    return NewCall("aten::remainder", ((looked_up,), ()), 0.0, 0.0, "int64")


# Calls of a graph become several calls each: the nodes of the old one are copied, and instructed to be the new ones.
#
# before   [T1|embedding_bag]-[T1|stack]
# after    [T1|remainder]-[T1|bmm]-[T1|bmm]-[T1|index_add]-[T1|stack]      each with the host time of the old one


def replace_calls(graph: ExecutionGraph, unit: np.ndarray, calls: Mapping[int, Sequence[NewCall]]) -> Edited:
    """The graph with other calls in place of some.

    `unit` [num_nodes]: the call of each node, -1 none; `calls`: of some, one or more new ones in order of execution.
    """
    came_from, touched = np.arange(graph.num_nodes), np.zeros(graph.num_nodes, dtype=bool)
    for count in sorted({len(new) for new in calls.values()}):
        chosen = [number for number, new in calls.items() if len(new) == count]
        own = np.where(np.isin(unit, chosen), unit, -1)
        graph, came, _ = insert_copies(graph, own, count - 1)
        place = pd.Series(came).groupby(came).cumcount().to_numpy()  # [num_nodes] copies first, the original last
        graph = replace(graph, nodes=_predicted(graph.nodes, own[came], place, calls))
        touched = touched[came] | (own[came] >= 0)
        unit, came_from = unit[came], came_from[came]
    return Edited(graph, touched, came_from)


def _predicted(
    nodes: pd.DataFrame, unit: np.ndarray, place: np.ndarray, calls: Mapping[int, Sequence[NewCall]]
) -> pd.DataFrame:
    """The table with names, shapes and costs of the new calls; latencies of their device work unknown."""
    texts = ("op_name", "input_dims", "family", "dtype", "event_name")
    column = {name: nodes[name].astype(object).to_numpy(copy=True) for name in texts}
    cost = {name: nodes[name].to_numpy(copy=True) for name in ("flops", "bytes", "latency_us")}
    inside = np.flatnonzero((unit >= 0) & (nodes["segment"] != Segment.T1).to_numpy())
    works = (nodes["node_type"] != NodeType.HOST).to_numpy()
    siblings = nodes["num_siblings"].to_numpy()
    for node in inside.tolist():
        call = calls[int(unit[node])][int(place[node])]
        family, flops, moved = call.cost()
        column["op_name"][node], column["input_dims"][node] = call.name, text(call.arguments)
        column["family"][node], column["dtype"][node] = family, call.dtype
        if works[node]:
            column["event_name"][node], cost["latency_us"][node] = None, np.nan
            cost["flops"][node], cost["bytes"][node] = flops / siblings[node], moved / siblings[node]
    return nodes.assign(**{name: pd.Categorical(values) for name, values in column.items()}, **cost)


GRADIENTS = ("_embedding_bag_backward", "_embedding_bag_dense_backward", "_embedding_bag_sparse_backward",
             "embedding_backward", "embedding_dense_backward", "embedding_sparse_backward")  # fmt: skip
ACCURACY = "whether the model learns as well with tables of rank {}"
CACHED = "how much of the cores a cache holds: each look-up is assumed to read its rows of them"
HELPERS = "which small ops around sparse gradients go: they stay, as messages of gradients of whole tables do"
WHICH = "which of the tables with {} columns a gradient belongs to: assumed to be the first"
RESULT = "table {} of {:.4g} MB becomes cores of {:.4g} MB: rows {}, columns {}, rank {}"


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
        require(self.rank >= 1, "rank of a tensor train", self.rank, "1 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        trains = {shape: self._train(graph, shape) for shape in sorted(tables(graph, self.of))}
        table, unit = call_table(graph)
        rows = table[table["input_dims"] != ""].to_dict("records")
        result = {int(row["unit"]): _becomes(row, trains) for row in rows}
        edited = replace_calls(graph, unit, {number: new for number, new in result.items() if new})
        columns = [shape[1] for shape in trains]
        doubtful = tuple(WHICH.format(one) for one in sorted(set(columns)) if columns.count(one) > 1)
        unknown = (ACCURACY.format(self.rank), CACHED, HELPERS, *doubtful)
        return replace(edited, unknown=unknown, result=tuple(_result(shape, train) for shape, train in trains.items()))

    def _train(self, graph: ExecutionGraph, shape: Shape) -> Train:
        train = train_of(shape, self.rank)
        if train.elements >= prod(shape):
            what = f"a train of rank {self.rank} has {train.elements} values, table {list(shape)} {prod(shape)}"
            raise refusal(graph, what, "a smaller rank")
        return train


def _becomes(row: dict[Hashable, Any], trains: dict[Shape, Train]) -> list[NewCall]:
    """What a call becomes; nothing where it stays."""
    op, arguments = op_of(str(row["op_name"])), parse(str(row["input_dims"]))
    if op in LOOKUPS:
        train = trains.get(tensors(arguments[0])[0]) if tensors(arguments[0]) else None
        return [] if train is None else _forward(op, arguments, train)
    if op in GRADIENTS and row["num_works"]:
        columns = next((shape[-1] for shape in all_shapes(arguments)), 0)
        train = next((train for shape, train in trains.items() if shape[1] == columns), None)
        return [] if train is None else backward_calls(train, prod(tensors(arguments[1])[0]))
    return _update(str(row["op_name"]), arguments, trains) if row["phase"] == Phase.OPTIMIZER else []


def _forward(op: str, arguments: tuple[Argument, ...], train: Train) -> list[NewCall]:
    indices = tensors(arguments[1])[0]
    offsets = tensors(arguments[2]) if op in BAGS and len(arguments) > 2 else ()
    bags = None if op not in BAGS else offsets[0][0] if offsets and len(indices) == 1 else indices[0]
    return forward_calls(train, prod(indices), bags)


def _update(name: str, arguments: tuple[Argument, ...], trains: dict[Shape, Train]) -> list[NewCall]:
    """An update of a table: of its cores, one after the other, or in the list in its place."""
    held = [shape for shape in all_shapes(arguments) if shape in trains]
    if not held:
        return []
    if any(is_list(argument) for argument in arguments):
        return [NewCall(name, tuple(_listed(argument, trains) for argument in arguments))]
    return [
        _adds(name, tuple(core if argument in trains else argument for argument in arguments), prod(core),
              2.0 * prod(core))
        for core in trains[held[0]].cores
    ]  # fmt: skip


def _listed(argument: Argument, trains: dict[Shape, Train]) -> Argument:
    """A list of parameters with cores in place of tables."""
    if not is_list(argument):
        return argument
    return tuple(part for shape in tensors(argument)
                 for part in (trains[shape].cores if shape in trains else (shape,)))  # fmt: skip


def _result(shape: Shape, train: Train) -> str:
    held = [FLOAT_BYTES * values / 1e6 for values in (prod(shape), train.elements)]
    rows, columns = (" x ".join(map(str, factors)) for factors in (train.rows, train.columns))
    return RESULT.format(list(shape), *held, rows, columns, train.rank)
