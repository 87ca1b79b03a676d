"""Shapes, FLOPs and bytes of the distinct calls of a graph after a change of shapes.

A graph keeps the shapes of a call and the dtype of its largest input, not its scalar values (strides, axes). So
formulas give the change, and the recorded cost is its base:

    new = formula(new shapes) + factor x (recorded - formula(old shapes))

The part without a formula (missing values, children of the op) grows with the batch. Without any formula, bytes of
inputs that keep their shapes count as read once.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isnan, prod

import numpy as np
import pandas as pd

from gnnperf.core import OpFamily, Phase
from gnnperf.generate import Argument, Shape, is_list, parse, tensors, text
from gnnperf.graph import DTYPE_BYTES, PROFILER_DTYPES, op_cost
from gnnperf.whatif.batch_shapes import all_shapes, op_of

INTEGERS: dict[str, tuple[int, ...]] = {
    "embedding": (1,), "embedding_bag": (1, 2), "embedding_backward": (1,), "cross_entropy_loss": (1,),
    "_embedding_bag_backward": (1, 2, 4, 5),
}  # fmt: skip
PROFILER_NAME = {dtype: name for name, dtype in reversed(PROFILER_DTYPES.items())}
DENSE_GRADIENTS = ("embedding_backward", "embedding_dense_backward")  # of tables: what is zeroed is no shape of theirs
SCALAR_BYTES = 8.0  # what an argument without dimensions can add to the bytes of a call
NO_WORK = (OpFamily.VIEW, OpFamily.UNKNOWN, OpFamily.COLLECTIVE)
KEYS = ["op_name", "phase", "input_dims", "dtype", "family", "flops", "bytes", "num_siblings"]
NAMED_OPS = 6


@dataclass(frozen=True)
class Cost:
    """FLOPs and bytes of a node; NaN unknown. `estimated`: no formula gives how they change."""

    flops: float
    bytes: float
    estimated: bool = False


def formula_cost(name: str, arguments: tuple[Argument, ...], dtype: str | None) -> Cost:
    """By the formula, from shapes only; NaN where there is none or it needs values."""
    integer = INTEGERS.get(op_of(name), ())
    own = PROFILER_NAME.get(dtype or "")
    kinds = [
        None if not argument or is_list(argument) else PROFILER_NAME["int64"] if place in integer else own
        for place, argument in enumerate(arguments)
    ]
    result = op_cost(name, text(arguments), json.dumps(kinds), None)
    return Cost(result.flops, result.bytes)


def with_shapes(
    name: str, old: tuple[Argument, ...], new: tuple[Argument, ...], recorded: Cost, dtype: str | None, factor: float,
    num_siblings: int = 1, results: frozenset[int] = frozenset(),
) -> Cost:  # fmt: skip
    """The cost of a node after a change of shapes that scales the batch by `factor`.

    `dtype` of its largest input; `num_siblings` nodes share the call's cost. `results`: numbers of elements that a
    result has when the batch is summed up, those of parameters. The part of a sum without a formula is its result.
    """
    before, after = formula_cost(name, old, dtype), formula_cost(name, new, dtype)
    item = DTYPE_BYTES.get(dtype or "float32", 4)
    pairs = zip(all_shapes(old), all_shapes(new), strict=True)
    retained = sum(prod(a) for a, b in pairs if a == b) * item / num_siblings
    flops = _changed(recorded.flops, before.flops / num_siblings, after.flops / num_siblings, factor, 0.0)
    if op_of(name) in DENSE_GRADIENTS:
        return Cost(flops, recorded.bytes + (added_rows(new, dtype) - added_rows(old, dtype)) / num_siblings)
    is_sum = op_of(name) == "sum" and (recorded.bytes * num_siblings - before.bytes) / item in results
    moved = _changed(recorded.bytes, before.bytes / num_siblings, after.bytes / num_siblings, factor,
                     recorded.bytes if is_sum else SCALAR_BYTES * len(old), min(retained, recorded.bytes))  # fmt: skip
    return Cost(flops, moved, estimated=isnan(before.flops) and not isnan(recorded.flops))


def added_rows(arguments: tuple[Argument, ...], dtype: str | None) -> float:
    """Bytes of a dense gradient of a table next to the table: rows read, and added to rows; their indices."""
    gradient, indices = (float(sum(map(prod, tensors(argument)))) for argument in arguments[:2])
    return 3.0 * gradient * DTYPE_BYTES.get(dtype or "float32", 4) + indices * DTYPE_BYTES["int64"]


def _changed(recorded: float, before: float, after: float, factor: float, constant: float, stays: float = 0.0) -> float:
    """`constant`: a rest of at most this size does not grow; `stays`: without a formula, the part that does not."""
    if isnan(recorded) or isnan(before):
        return recorded if isnan(recorded) else stays + factor * (recorded - stays)
    rest = recorded - before
    return after + (rest if abs(rest) <= constant else factor * rest)


@dataclass(frozen=True)
class DistinctCall:
    """One op call, and how many nodes run it."""

    name: str  # name, phase: of the op; "" unknown
    phase: str
    arguments: tuple[Argument, ...]  # its shapes
    dtype: str | None  # of its largest input; None unknown
    family: str  # OpFamily
    recorded: Cost  # FLOPs and bytes of a node
    num_siblings: int  # nodes that share a call's cost
    count: int  # nodes with this call

    @property
    def is_sparse_update(self) -> bool:
        """A sparse gradient added to its table: its cost is that of the rows looked up (graph.op_costs)."""
        return self.family == OpFamily.EMBEDDING and self.phase == Phase.OPTIMIZER and not is_list(self.arguments[0])

    def works_on_data(self, parameters: frozenset[Shape]) -> bool:
        """Whether the op computes with a tensor that is no parameter."""
        works = self.family not in NO_WORK and self.phase != Phase.OPTIMIZER
        return works and any(len(shape) > 1 and shape not in parameters for shape in all_shapes(self.arguments))


@dataclass(frozen=True)
class Changed:
    """A node table with other shapes and costs."""

    nodes: pd.DataFrame  # the table
    touched: np.ndarray  # [num_nodes] bool, another shape or cost
    grown: np.ndarray  # [num_nodes] bool, another shape


ChangeOf = Callable[[DistinctCall], tuple[tuple[Argument, ...], Cost] | None]  # new shapes and cost; None: no change


def change_calls(nodes: pd.DataFrame, change_of: ChangeOf) -> Changed:
    """Change every distinct call with shapes once, for all nodes that run it."""
    keyed = nodes[KEYS].astype(object)
    group = keyed.assign(num_siblings=nodes["num_siblings"]).groupby(KEYS, sort=False, dropna=False).ngroup().to_numpy()
    _, first = np.unique(group, return_index=True)  # a row of each distinct call, by its number
    counts, rows = np.bincount(group), keyed.iloc[first]
    dims, flops, moved = (rows[column].to_numpy().copy() for column in ("input_dims", "flops", "bytes"))
    touched = np.zeros(len(rows), bool)
    for number, row in enumerate(rows.itertuples(index=False, name=None)):
        values = dict(zip(KEYS, row, strict=True))
        result = change_of(_call(values, int(counts[number]))) if isinstance(values["input_dims"], str) else None
        if result is not None:
            touched[number], dims[number] = True, text(result[0])
            flops[number], moved[number] = result[1].flops, result[1].bytes
    grown = touched & (dims != rows["input_dims"].to_numpy())
    table = nodes.assign(
        input_dims=pd.Categorical(dims[group]), flops=flops[group].astype(float), bytes=moved[group].astype(float)
    )
    return Changed(table, touched[group], grown[group])


def _call(row: dict[str, object], count: int) -> DistinctCall:
    name, phase, dtype, family = (
        str(row[column]) if isinstance(row[column], str) else None for column in ("op_name", "phase", "dtype", "family")
    )
    cost, siblings = Cost(float(str(row["flops"])), float(str(row["bytes"]))), int(str(row["num_siblings"]))
    return DistinctCall(
        name or "", phase or "", parse(str(row["input_dims"])), dtype, family or "", cost, siblings, count
    )


@dataclass
class Doubts:
    """Calls for which a change of shapes is uncertain, counted by op."""

    dimension: str  # what changes, in sentences: batch or sequence
    alike: Counter[str] = field(default_factory=Counter)  # shapes of it and of other tensors are alike
    estimated: Counter[str] = field(default_factory=Counter)  # no formula gives FLOPs and bytes
    without: Counter[str] = field(default_factory=Counter)  # no dimension has one of its sizes

    def sentences(self) -> tuple[str, ...]:
        """For the assumptions of an edit."""
        what = self.dimension
        sentences = (
            (self.alike, f"which dimension is the {what} in {{}}: shapes of it and of parameters or heads are alike"),
            (self.estimated, f"FLOPs and bytes of {{}}: no formula, they are assumed to grow with the {what}"),
            (self.without, f"the {what} in {{}}: no dimension has one of its sizes, they stay as they are"),
        )
        return tuple(sentence.format(listed(+counts)) for counts, sentence in sentences if +counts)


def listed(counts: Counter[str]) -> str:
    """The most frequent ops, with their numbers."""
    named = ", ".join(f"{name} ({count})" for name, count in counts.most_common(NAMED_OPS) if count)
    return named + (f" and {len(counts) - NAMED_OPS} more ops" if len(counts) > NAMED_OPS else "")
