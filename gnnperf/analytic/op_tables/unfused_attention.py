"""Attention that is not fused, as the calls that torch makes of it (aten::_scaled_dot_product_attention_math).

The scores of every pair of positions are written and read between two batched products (Vaswani et al. 2017, equation
1). Traces hold these calls, each with its own shapes and kernels, and so they are priced there; a row of an op table
is their sum. Which calls they are: ATen/native/transformers/attention.cpp of PyTorch 2.13 (queries and keys are scaled
before they are multiplied; rows that are masked throughout become zeros).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.op_tables.read import OpRow, Shape
from gnnperf.analytic.op_tables.signatures import tensor_call
from gnnperf.graph import UnknownCost

OP = "aten::_scaled_dot_product_attention_math"
LAST_AXIS: Mapping[str, str] = {"aten::all": "[-1]", "aten::_softmax": "-1"}
Part = tuple[str, tuple[Shape, ...], tuple[str, ...]]  # op, shapes, dtypes; "" is the row's


@dataclass(frozen=True)
class _Sizes:
    """Edges of one call; leading axes and heads are one."""

    heads: int
    queries: int
    keys: int
    dim: int
    value_dim: int

    @property
    def scores(self) -> Shape:
        """One per pair of positions."""
        return (self.heads, self.queries, self.keys)


def forward_calls(row: OpRow) -> list[KernelCall]:
    """(q, k, v, attn_mask, dropout_p, is_causal): scores = Q K', softmax, result = P V, and what lies between them."""
    size, floats = _sizes(row), ("", "")
    q, k = (size.heads, size.queries, size.dim), (size.heads, size.dim, size.keys)
    parts: list[Part] = [("aten::mul", (q, ()), floats), ("aten::mul", (k, ()), floats)]
    if (mask := _mask(row, size)) is not None:
        parts.append(("aten::add_", (size.scores, mask), floats))
    parts += [("aten::bmm", (q, k), floats), ("aten::_softmax", (size.scores,), floats[:1]), *_zeroed(size)]
    if _dropout(row):
        parts.append(("aten::native_dropout", (size.scores,), floats[:1]))
    parts.append(("aten::bmm", (size.scores, (size.heads, size.keys, size.value_dim)), floats))
    return [_part(part, row) for part in parts]


def backward_calls(row: OpRow) -> list[KernelCall]:
    """dV = P' dO, dP = dO V', softmax backward to dS, dQ = dS K, dK' = Q' dS, and both scaled."""
    size, floats = _sizes(row), ("", "")
    heads, queries, keys, dim, value_dim = size.heads, size.queries, size.keys, size.dim, size.value_dim
    parts: list[Part] = [
        ("aten::bmm", ((heads, keys, queries), (heads, queries, value_dim)), floats),
        ("aten::bmm", ((heads, queries, value_dim), (heads, value_dim, keys)), floats),
        ("aten::_softmax_backward_data", (size.scores, size.scores), floats),
        ("aten::bmm", (size.scores, (heads, keys, dim)), floats),
        ("aten::bmm", ((heads, dim, queries), size.scores), floats),
        ("aten::mul", ((heads, queries, dim), ()), floats),
        ("aten::mul", ((heads, dim, keys), ()), floats),
    ]
    if _dropout(row):
        parts.append(("aten::native_dropout_backward", (size.scores, size.scores), ("", "bool")))
    return [_part(part, row) for part in parts]


def _zeroed(size: _Sizes) -> list[Part]:
    """aten::_safe_softmax: rows without any key that may be seen become zeros."""
    rows = (size.heads, size.queries, 1)
    return [("aten::isneginf", (size.scores,), ("",)), ("aten::all", (size.scores,), ("bool",)),
            ("aten::where", (rows, (), size.scores), ("bool", "", ""))]  # fmt: skip


def _mask(row: OpRow, size: _Sizes) -> Shape | None:
    """What is added to the scores: a mask that is given, or the one that is made of is_causal; None without."""
    if len(row.shapes) > 3 and row.shapes[3] is not None:
        return row.shapes[3] if len(row.shapes[3]) <= 2 else (prod(row.shapes[3][:-2]), *row.shapes[3][-2:])
    return (size.queries, size.keys) if row.arguments.get("is_causal") else None


def _dropout(row: OpRow) -> bool:
    return bool(row.arguments.get("dropout_p"))


def _sizes(row: OpRow) -> _Sizes:
    """Raises UnknownCost where the shapes do not belong together, or fewer heads of keys are shared (enable_gqa)."""
    if len(row.shapes) < 3:
        raise UnknownCost
    q, k, v = row.shapes[:3]
    if q is None or k is None or v is None or min(len(q), len(k), len(v)) < 3:
        raise UnknownCost
    if not q[:-2] == k[:-2] == v[:-2] or q[-1] != k[-1] or k[-2] != v[-2]:
        raise UnknownCost
    return _Sizes(prod(q[:-2]), q[-2], k[-2], q[-1], v[-1])


def _part(part: Part, row: OpRow) -> KernelCall:
    op, shapes, dtypes = part
    values = [LAST_AXIS[op]] if op in LAST_AXIS else []
    return tensor_call(op, shapes, row, [dtype or row.dtypes[0] for dtype in dtypes], values)
