"""Products and their gradients, biases, and where gradients of micro-batches are added up."""

from __future__ import annotations

from gnnperf.core import Phase
from gnnperf.generate.transformer.items import Item, op, views
from gnnperf.generate.transformer.sizes import Sizes
from gnnperf.graph import Tensor

B = Phase.BACKWARD


def product(s: Sizes, phase: Phase, depth: int, columns: int) -> tuple[Item, ...]:
    """[tokens, depth] x [depth, columns], a linear layer without its bias."""
    return (views(phase, "t", "reshape"), op("aten::mm", phase, s.half(s.tokens, depth), s.half(depth, columns)))


def input_gradient(s: Sizes, rows: int, depth: int, columns: int) -> tuple[Item, ...]:
    """Of [rows, depth] x [depth, columns]."""
    return (views(B, "reshape", "t"), op("aten::mm", B, s.half(rows, columns), s.half(columns, depth)))


def weight_gradient(s: Sizes, rows: int, depth: int, columns: int) -> tuple[Item, ...]:
    """Of [rows, depth] x [depth, columns], added to that of earlier micro-batches."""
    return (
        views(B, "t", "t"),
        op("aten::mm", B, s.half(columns, rows), s.half(rows, depth)),
        views(B, "reshape", "t"),
        *accumulate(s, columns * depth),
    )


def product_backward(s: Sizes, rows: int, depth: int, columns: int) -> tuple[Item, ...]:
    """Of [rows, depth] x [depth, columns]: gradients of input and weight."""
    return (*input_gradient(s, rows, depth, columns), *weight_gradient(s, rows, depth, columns))


def bias_backward(s: Sizes, rows: int, columns: int) -> tuple[Item, ...]:
    """A sum over tokens."""
    grad = s.half(rows, columns)
    return (op("aten::sum", B, grad, None, None, values=["", "[0]", "True"]), *accumulate(s, columns))


def accumulate(s: Sizes, parameters: int) -> tuple[Item, ...]:
    """A weight's gradient, added to the sum over micro-batches; nothing where it leaves the rank in every pass."""
    if not s.adds_gradients:
        return ()
    return (op("aten::add_", B, Tensor((parameters,), s.gradient_dtype), s.half(parameters)),)
