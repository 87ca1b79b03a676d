"""FLOPs and bytes of a call whose shapes change, from what was recorded and the formulas of graph.cost.

A graph keeps the shapes of a call and the dtype of its largest input, not its scalar values (strides, axes). So
formulas answer for the change, and what was recorded stays what it is changed from:

    new = formula(new shapes) + factor x (recorded - formula(old shapes))

What the formula does not explain (values that are missing, children of the op) is taken to grow with the batch. Where
there is no formula, bytes of inputs that stay are taken to be read once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isnan, prod

from gnnperf.generate import Argument, is_list, tensors, text
from gnnperf.graph import DTYPE_BYTES, PROFILER_DTYPES, op_cost
from gnnperf.whatif.batch_sizes import op_of

INTEGERS: dict[str, tuple[int, ...]] = {
    "embedding": (1,), "embedding_bag": (1, 2), "embedding_backward": (1,), "cross_entropy_loss": (1,),
    "_embedding_bag_backward": (1, 2, 4, 5),
}  # fmt: skip
PROFILER_NAME = {dtype: name for name, dtype in reversed(PROFILER_DTYPES.items())}
DENSE_GRADIENTS = ("embedding_backward", "embedding_dense_backward")  # of tables: what is zeroed is no shape of theirs
SCALAR_BYTES = 8.0  # what an argument without dimensions can add to the bytes of a call


@dataclass(frozen=True)
class Cost:
    """FLOPs and bytes of a node; NaN unknown. `estimated`: no formula gives how they change."""

    flops: float
    bytes: float
    estimated: bool = False


def formula_cost(name: str, arguments: tuple[Argument, ...], dtype: str | None) -> Cost:
    """What the formula says of shapes only; NaN where it has none or needs values."""
    integer = INTEGERS.get(op_of(name), ())
    own = PROFILER_NAME.get(dtype or "")
    kinds = [
        None if not argument or is_list(argument) else PROFILER_NAME["int64"] if place in integer else own
        for place, argument in enumerate(arguments)
    ]
    result = op_cost(name, text(arguments), json.dumps(kinds), None)
    return Cost(result.flops, result.bytes)


def with_shapes(
    name: str,
    old: tuple[Argument, ...],
    new: tuple[Argument, ...],
    recorded: Cost,
    dtype: str | None,
    factor: float,
    num_siblings: int = 1,
    results: frozenset[int] = frozenset(),
) -> Cost:
    """The cost of a node after a change of shapes that scales the batch by `factor`.

    Args:
        name: of the op.
        old: its shapes before.
        new: its shapes after.
        recorded: before.
        dtype: of its largest input; None unknown.
        factor: new batch / old batch.
        num_siblings: nodes that share the call's cost.
        results: numbers of elements that a result has when the batch is summed up: those of parameters. What the
            formula of a sum does not explain is its result.
    """
    before, after = formula_cost(name, old, dtype), formula_cost(name, new, dtype)
    retained = _retained_bytes(old, new, dtype) / num_siblings
    flops = _changed(recorded.flops, before.flops / num_siblings, after.flops / num_siblings, factor, 0.0)
    margin = SCALAR_BYTES * len(old)
    rest = (recorded.bytes * num_siblings - before.bytes) / DTYPE_BYTES.get(dtype or "float32", 4)
    if op_of(name) == "sum" and rest in results:
        margin = recorded.bytes
    if op_of(name) in DENSE_GRADIENTS:
        return Cost(flops, recorded.bytes + (added_rows(new, dtype) - added_rows(old, dtype)) / num_siblings)
    moved = _changed(recorded.bytes, before.bytes / num_siblings, after.bytes / num_siblings, factor, margin,
                     min(retained, recorded.bytes))  # fmt: skip
    return Cost(flops, moved, estimated=isnan(before.flops) and not isnan(recorded.flops))


def added_rows(arguments: tuple[Argument, ...], dtype: str | None) -> float:
    """Bytes of a dense gradient of a table next to the table: rows read, and added to rows; their indices."""
    gradient, indices = (float(sum(map(prod, tensors(argument)))) for argument in arguments[:2])
    return 3.0 * gradient * DTYPE_BYTES.get(dtype or "float32", 4) + indices * DTYPE_BYTES["int64"]


def _retained_bytes(old: tuple[Argument, ...], new: tuple[Argument, ...], dtype: str | None) -> float:
    """Bytes of the inputs that keep their shapes."""
    before = [shape for argument in old for shape in tensors(argument)]
    after = [shape for argument in new for shape in tensors(argument)]
    retained = sum(prod(a) for a, b in zip(before, after, strict=True) if a == b)
    return float(retained * DTYPE_BYTES.get(dtype or "float32", 4))


def _changed(recorded: float, before: float, after: float, factor: float, constant: float, stays: float = 0.0) -> float:
    """`constant`: a rest of at most this size does not grow; `stays`: without a formula, the part that does not."""
    if isnan(recorded) or isnan(before):
        return recorded if isnan(recorded) else stays + factor * (recorded - stays)
    rest = recorded - before
    return after + (rest if abs(rest) <= constant else factor * rest)
