"""Rules of ops: which shapes they take, which shape they give, and how large values may become (as NeuRI's, by hand).

A rule looks at values (shapes and bounds, no data) and returns an op that is valid on them, or None. Tables list
the ops by what they do to a shape. The order of draws is part of a program's seed: do not change it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.workload import device

Shape = tuple[int, ...]
WIDTHS = (16, 24, 32, 48, 64, 96, 128)  # outputs of products
CHANNELS = (4, 8, 12, 16, 24, 32)
MOST_DIMS = 5
Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Value:
    """What is known of a tensor before it exists: its shape, and about how large its numbers become."""

    shape: Shape
    bound: float


@dataclass(frozen=True)
class Op:
    """An op on given inputs."""

    name: str  # of the rule
    output: Value  # what it gives
    work: float  # multiplications and additions, about
    build: Callable[[], nn.Module]  # makes it, with its weights


@dataclass(frozen=True)
class Rule:
    """`propose(random, *inputs)`: an op of this name, or None if no such op takes these inputs."""

    name: str
    arity: int
    propose: Callable[..., Op | None]


class Apply(nn.Module):
    """A function of tensors without weights; `settings` are its other arguments."""

    def __init__(self, function: Function, **settings: Any) -> None:
        super().__init__()
        self.function, self.settings = function, settings

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs, **self.settings)


class Shifted(nn.Module):
    """Adds (torch.add) or multiplies by (torch.mul) weights of the last dimensions."""

    def __init__(self, shape: Shape, function: Function) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.rand(shape)), function

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Of the shape of `values`."""
        return self.function(values, self.weight)


def free_of_weights(
    name: str, output: Shape, bound: float, function: Function, work: float = 0.0, **settings: Any
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


def _same(bound: float, size: int = 0) -> float:
    return bound


def _one(bound: float, size: int = 0) -> float:
    return 1.0


def _elementwise(name: str, function: Function, bound: Callable[[float], float]) -> Rule:
    return Rule(name, 1, lambda random, a: free_of_weights(name, a.shape, bound(a.bound), function))


def _reduction(name: str, function: Function, bound: Callable[[float, int], float]) -> Rule:
    """Over one dimension, which becomes 1 or goes."""

    def propose(random: Random, a: Value) -> Op | None:
        dim, keep = random.randrange(len(a.shape)), random.random() < 0.5
        if a.shape[dim] < 2 or len(a.shape) < 2:
            return None
        output = replaced(a.shape, dim, 1) if keep else a.shape[:dim] + a.shape[dim + 1 :]
        larger = bound(a.bound, a.shape[dim])
        return free_of_weights(name, output, larger, function, float(prod(a.shape)), dim=dim, keepdim=keep)

    return Rule(name, 1, propose)


Chosen = tuple[Shape, dict[str, Any]] | None  # output, and settings of the function; None: not on this shape
Sized = Callable[[float, int], float]  # bound and size of the dimension -> bound


def _moved(
    name: str, function: Function, choose: Callable[[Random, Shape], Chosen], least: int = 1, most: int = MOST_DIMS
) -> Rule:
    """Values of so many dimensions stay as they are."""

    def propose(random: Random, a: Value) -> Op | None:
        chosen = choose(random, a.shape) if least <= len(a.shape) <= most else None
        return chosen and free_of_weights(name, chosen[0], a.bound, function, **chosen[1])

    return Rule(name, 1, propose)


def _along(
    name: str, function: Function, least: int = 2,
    choose: Callable[[Random, Shape, int], Chosen] = lambda random, shape, dim: (shape, {"dim": dim}),
    bound: Sized = _same,
) -> Rule:  # fmt: skip
    """Along one dimension of at least this size."""

    def propose(random: Random, a: Value) -> Op | None:
        dim = random.randrange(len(a.shape))
        chosen = choose(random, a.shape, dim) if a.shape[dim] >= least else None
        return chosen and free_of_weights(name, chosen[0], bound(a.bound, a.shape[dim]), function, **chosen[1])

    return Rule(name, 1, propose)


ELEMENTWISE = (
    _elementwise("relu", F.relu, _same), _elementwise("leaky_relu", F.leaky_relu, _same),
    _elementwise("gelu", F.gelu, _same), _elementwise("silu", F.silu, _same), _elementwise("elu", F.elu, _same),
    _elementwise("hardswish", F.hardswish, _same), _elementwise("softplus", F.softplus, lambda b: b + 1),
    _elementwise("abs", torch.abs, _same), _elementwise("neg", torch.neg, _same),
    _elementwise("square", torch.square, lambda b: b * b), _elementwise("tanh", torch.tanh, _one),
    _elementwise("sigmoid", torch.sigmoid, _one), _elementwise("sin", torch.sin, _one),
    _elementwise("cos", torch.cos, _one), _elementwise("exp", lambda x: torch.exp(-x.abs()), _one),
    _elementwise("rsqrt", lambda x: torch.rsqrt(1 + x * x), _one),
    _elementwise("clamp", lambda x: x.clamp(-1, 1), _one),
)  # fmt: skip
ALONG = (
    _along("softmax", F.softmax, bound=_one), _along("log_softmax", F.log_softmax, bound=lambda b, n: 2 * b + 5),
    _along("cumsum", torch.cumsum, bound=lambda b, n: b * n), _along("sort", lambda x, dim: x.sort(dim=dim).values),
    _along("flip", lambda x, dim: x.flip(dim)), _along("roll", lambda x, dim: x.roll(1, dim)),
    _along("normalize", lambda x, dim: F.normalize(x, dim=dim), bound=_one),
)  # fmt: skip
REDUCTIONS = (
    _reduction("sum", torch.sum, lambda b, n: b * n), _reduction("mean", torch.mean, _same),
    _reduction("var", torch.var, lambda b, n: 2 * b * b), _reduction("amax", torch.amax, _same),
    _reduction("amin", torch.amin, _same), _reduction("logsumexp", torch.logsumexp, lambda b, n: b + 8),
)  # fmt: skip


def _transpose(random: Random, shape: Shape) -> Chosen:
    i, j = sorted(random.sample(range(len(shape)), 2))
    return replaced(replaced(shape, i, shape[j]), j, shape[i]), {"dim0": i, "dim1": j}


def _permute(random: Random, shape: Shape) -> Chosen:
    order = random.sample(range(len(shape)), len(shape))
    return tuple(shape[i] for i in order), {"dims": order}


def _reshape(random: Random, shape: Shape) -> Chosen:
    """Two neighboring dimensions into one, or one into two."""
    dim = random.randrange(len(shape))
    if len(shape) > 2 and random.random() < 0.5 and dim + 1 < len(shape):
        output = (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])
    else:
        factors = [f for f in (2, 3, 4, 8) if shape[dim] % f == 0 and shape[dim] > f]
        if not factors or len(shape) >= MOST_DIMS:
            return None
        factor = random.choice(factors)
        output = (*shape[:dim], factor, shape[dim] // factor, *shape[dim + 1 :])
    return output, {"shape": output}


def _unsqueeze(random: Random, shape: Shape) -> Chosen:
    dim = random.randrange(len(shape) + 1)
    return (*shape[:dim], 1, *shape[dim:]), {"dim": dim}


def _on_a_one(random: Random, shape: Shape, choose: Callable[[int], Chosen]) -> Chosen:
    """What is chosen for one of the dimensions of size 1, if there are any."""
    ones = [i for i, size in enumerate(shape) if size == 1]
    return choose(random.choice(ones)) if ones else None


def _expand(random: Random, shape: Shape) -> Chosen:
    def chosen(dim: int) -> Chosen:
        output = replaced(shape, dim, random.choice((2, 4, 8, 16)))
        return output, {"size": output}

    return _on_a_one(random, shape, chosen)


def _slice(random: Random, shape: Shape, dim: int) -> Chosen:
    length = random.randint(shape[dim] // 2, shape[dim] - 1)
    start = random.randint(0, shape[dim] - length)
    return replaced(shape, dim, length), {"dim": dim, "start": start, "length": length}


def _index_select(random: Random, shape: Shape, dim: int) -> Chosen:
    chosen = torch.tensor([random.randrange(shape[dim]) for _ in range(shape[dim])], device=device())
    return shape, {"dim": dim, "index": chosen}


def _pad(random: Random, shape: Shape) -> Chosen:
    before, after = random.randint(0, 2), random.randint(1, 2)
    return (*shape[:-1], shape[-1] + before + after), {"pad": (before, after)}


def _half(shape: Shape, dim: int) -> Shape:
    return replaced(shape, dim, shape[dim] // 2)


LAYOUT = (
    _moved("transpose", torch.transpose, _transpose, least=2),
    _moved("contiguous", lambda x, dims: x.permute(dims).contiguous(), _permute, least=3),
    _moved("reshape", torch.reshape, _reshape), _moved("unsqueeze", torch.unsqueeze, _unsqueeze, most=MOST_DIMS - 1),
    _moved("squeeze", torch.squeeze, lambda random, shape: _on_a_one(
        random, shape, lambda dim: (shape[:dim] + shape[dim + 1 :], {"dim": dim})), least=2),
    _moved("expand", lambda x, size: x.expand(size), _expand),
    _along("slice", torch.narrow, 4, _slice), _along("index_select", torch.index_select, 2, _index_select),
    _along("topk", lambda x, k, dim: x.topk(k, dim=dim).values, 4,
           lambda random, shape, dim: (_half(shape, dim), {"k": shape[dim] // 2, "dim": dim})),
    _along("glu", F.glu, 1, lambda random, shape, dim: None if shape[dim] % 2 else (_half(shape, dim), {"dim": dim})),
    _moved("pad", F.pad, _pad), _moved("tril", torch.tril, lambda random, shape: (shape, {}), least=2),
    _along("repeat", lambda x, times: x.repeat(times), 1, lambda random, shape, dim: (
        replaced(shape, dim, 2 * shape[dim]), {"times": replaced((1,) * len(shape), dim, 2)})),
)  # fmt: skip


def _binary(name: str, function: Function, bound: Callable[[float, float], float]) -> Rule:
    def propose(random: Random, a: Value, b: Value) -> Op | None:
        output = broadcast(a.shape, b.shape)
        return None if output is None else free_of_weights(name, output, bound(a.bound, b.bound), function)

    return Rule(name, 2, propose)


def _cat(random: Random, a: Value, b: Value) -> Op | None:
    if len(a.shape) != len(b.shape):
        return None
    differing = [i for i, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if x != y]
    if len(differing) > 1:
        return None
    dim = differing[0] if differing else random.randrange(len(a.shape))
    output = replaced(a.shape, dim, a.shape[dim] + b.shape[dim])
    return free_of_weights("cat", output, max(a.bound, b.bound), lambda *x, dim: torch.cat(x, dim), dim=dim)


def _stack(random: Random, a: Value, b: Value) -> Op | None:
    if a.shape != b.shape or len(a.shape) >= MOST_DIMS:
        return None
    return free_of_weights("stack", (2, *a.shape), max(a.bound, b.bound), lambda *x: torch.stack(x))


BINARY = (
    _binary("add", torch.add, lambda x, y: x + y), _binary("sub", torch.sub, lambda x, y: x + y),
    _binary("mul", torch.mul, lambda x, y: x * y), _binary("div", lambda a, b: a / (1 + b.abs()), lambda x, y: x),
    _binary("maximum", torch.maximum, max), _binary("minimum", torch.minimum, max),
    _binary("where", lambda a, b: torch.where(a > b, a, b * 0.5), max), Rule("cat", 2, _cat), Rule("stack", 2, _stack),
)  # fmt: skip
