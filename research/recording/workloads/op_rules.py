"""Rules of ops: which shapes they take, which shape they give, and how large values may become (as NeuRI's, by hand).

A rule looks at values (shapes and bounds, no data) and answers with an op that is valid on them, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Shape = tuple[int, ...]
WIDTHS = (16, 24, 32, 48, 64, 96, 128)  # outputs of products
CHANNELS = (4, 8, 12, 16, 24, 32)


@dataclass(frozen=True)
class Value:
    """What is known of a tensor before it exists: its shape, and about how large its numbers become."""

    shape: Shape
    bound: float


@dataclass(frozen=True)
class Op:
    """An op on given inputs.

    Attributes:
        name: of the rule.
        output: what it gives.
        work: multiplications and additions, about.
        build: makes it, with its weights.
    """

    name: str
    output: Value
    work: float
    build: Callable[[], nn.Module]


@dataclass(frozen=True)
class Rule:
    """`propose(random, *inputs)`: an op of this name, or None if no such op takes these inputs."""

    name: str
    arity: int
    propose: Callable[..., Op | None]


class Apply(nn.Module):
    """A function without weights.

    Args:
        function: of tensors.
        settings: its other arguments.
    """

    def __init__(self, function: Callable[..., torch.Tensor], **settings: Any) -> None:
        super().__init__()
        self.function, self.settings = function, settings

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs, **self.settings)


class Shifted(nn.Module):
    """Adds (or multiplies by) weights of the last dimensions.

    Args:
        shape: of the weights.
        function: torch.add or torch.mul.
    """

    def __init__(self, shape: Shape, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.rand(shape)), function

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Of the shape of `values`."""
        return self.function(values, self.weight)


def free_of_weights(
    name: str, output: Shape, bound: float, function: Callable[..., torch.Tensor], work: float = 0.0, **settings: Any
) -> Op:
    """An op without weights; `work` is the number of its results unless stated."""
    return Op(name, Value(output, bound), work or prod(output), lambda: Apply(function, **settings))


def replaced(shape: Shape, dim: int, size: int) -> Shape:
    """`shape` with another size in one dimension."""
    return (*shape[:dim], size, *shape[dim + 1 :])


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The shape both expand to; None if they do not."""
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    return tuple(map(max, pairs)) if all(x == y or 1 in (x, y) for x, y in pairs) else None


# --- one input, same shape -------------------------------------------------------------------------------------------


def _elementwise(name: str, function: Callable[..., torch.Tensor], bound: Callable[[float], float]) -> Rule:
    def propose(random: Random, a: Value) -> Op:
        return free_of_weights(name, a.shape, bound(a.bound), function)

    return Rule(name, 1, propose)


def _along(name: str, function: Callable[..., torch.Tensor], bound: Callable[[float, int], float]) -> Rule:
    """Along one dimension, which stays."""

    def propose(random: Random, a: Value) -> Op | None:
        dim = random.randrange(len(a.shape))
        if a.shape[dim] < 2:
            return None
        return free_of_weights(name, a.shape, bound(a.bound, a.shape[dim]), function, dim=dim)

    return Rule(name, 1, propose)


def _reduction(name: str, function: Callable[..., torch.Tensor], bound: Callable[[float, int], float]) -> Rule:
    """Over one dimension, which becomes 1 or goes."""

    def propose(random: Random, a: Value) -> Op | None:
        dim, keep = random.randrange(len(a.shape)), random.random() < 0.5
        if a.shape[dim] < 2 or len(a.shape) < 2:
            return None
        output = replaced(a.shape, dim, 1) if keep else a.shape[:dim] + a.shape[dim + 1 :]
        larger = bound(a.bound, a.shape[dim])
        return free_of_weights(name, output, larger, function, float(prod(a.shape)), dim=dim, keepdim=keep)

    return Rule(name, 1, propose)


def _same(bound: float) -> float:
    return bound


def _one(bound: float) -> float:
    return 1.0


ELEMENTWISE = (
    _elementwise("relu", F.relu, _same),
    _elementwise("leaky_relu", F.leaky_relu, _same),
    _elementwise("gelu", F.gelu, _same),
    _elementwise("silu", F.silu, _same),
    _elementwise("elu", F.elu, _same),
    _elementwise("hardswish", F.hardswish, _same),
    _elementwise("softplus", F.softplus, lambda b: b + 1),
    _elementwise("abs", torch.abs, _same),
    _elementwise("neg", torch.neg, _same),
    _elementwise("square", torch.square, lambda b: b * b),
    _elementwise("tanh", torch.tanh, _one),
    _elementwise("sigmoid", torch.sigmoid, _one),
    _elementwise("sin", torch.sin, _one),
    _elementwise("cos", torch.cos, _one),
    _elementwise("exp", lambda x: torch.exp(-x.abs()), _one),
    _elementwise("rsqrt", lambda x: torch.rsqrt(1 + x * x), _one),
    _elementwise("clamp", lambda x: x.clamp(-1, 1), _one),
)
ALONG = (
    _along("softmax", F.softmax, lambda b, n: 1.0),
    _along("log_softmax", F.log_softmax, lambda b, n: 2 * b + 5),
    _along("cumsum", torch.cumsum, lambda b, n: b * n),
    _along("sort", lambda x, dim: x.sort(dim=dim).values, lambda b, n: b),
    _along("flip", lambda x, dim: x.flip(dim), lambda b, n: b),
    _along("roll", lambda x, dim: x.roll(1, dim), lambda b, n: b),
    _along("normalize", lambda x, dim: F.normalize(x, dim=dim), lambda b, n: 1.0),
)
REDUCTIONS = (
    _reduction("sum", torch.sum, lambda b, n: b * n),
    _reduction("mean", torch.mean, lambda b, n: b),
    _reduction("var", torch.var, lambda b, n: 2 * b * b),
    _reduction("amax", torch.amax, lambda b, n: b),
    _reduction("amin", torch.amin, lambda b, n: b),
    _reduction("logsumexp", torch.logsumexp, lambda b, n: b + 8),
)
