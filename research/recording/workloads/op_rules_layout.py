"""Rules of ops that move values: views, copies, parts, several tensors into one; and of two inputs by element."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from torch.nn import functional as F

from research.recording.workloads.op_rules import Op, Rule, Value, broadcast, free_of_weights, replaced
from research.recording.workloads.workload import device

MOST_DIMS = 5


def _transpose(random: Random, a: Value) -> Op | None:
    if len(a.shape) < 2:
        return None
    i, j = sorted(random.sample(range(len(a.shape)), 2))
    output = replaced(replaced(a.shape, i, a.shape[j]), j, a.shape[i])
    return free_of_weights("transpose", output, a.bound, torch.transpose, dim0=i, dim1=j)


def _permute(random: Random, a: Value) -> Op | None:
    if len(a.shape) < 3:
        return None
    order = random.sample(range(len(a.shape)), len(a.shape))
    return free_of_weights("contiguous", tuple(a.shape[i] for i in order), a.bound,
                           lambda x, dims: x.permute(dims).contiguous(), dims=order)  # fmt: skip


def _reshape(random: Random, a: Value) -> Op | None:
    """Two neighboring dimensions into one, or one into two."""
    dim = random.randrange(len(a.shape))
    if len(a.shape) > 2 and random.random() < 0.5 and dim + 1 < len(a.shape):
        output = (*a.shape[:dim], a.shape[dim] * a.shape[dim + 1], *a.shape[dim + 2 :])
    else:
        factors = [f for f in (2, 3, 4, 8) if a.shape[dim] % f == 0 and a.shape[dim] > f]
        if not factors or len(a.shape) >= MOST_DIMS:
            return None
        factor = random.choice(factors)
        output = (*a.shape[:dim], factor, a.shape[dim] // factor, *a.shape[dim + 1 :])
    return free_of_weights("reshape", output, a.bound, torch.reshape, shape=output)


def _unsqueeze(random: Random, a: Value) -> Op | None:
    if len(a.shape) >= MOST_DIMS:
        return None
    dim = random.randrange(len(a.shape) + 1)
    return free_of_weights("unsqueeze", (*a.shape[:dim], 1, *a.shape[dim:]), a.bound, torch.unsqueeze, dim=dim)


def _squeeze(random: Random, a: Value) -> Op | None:
    ones = [i for i, size in enumerate(a.shape) if size == 1]
    if not ones or len(a.shape) < 2:
        return None
    dim = random.choice(ones)
    return free_of_weights("squeeze", a.shape[:dim] + a.shape[dim + 1 :], a.bound, torch.squeeze, dim=dim)


def _expand(random: Random, a: Value) -> Op | None:
    ones = [i for i, size in enumerate(a.shape) if size == 1]
    if not ones:
        return None
    output = replaced(a.shape, random.choice(ones), random.choice((2, 4, 8, 16)))
    return free_of_weights("expand", output, a.bound, lambda x, size: x.expand(size), size=output)


def _slice(random: Random, a: Value) -> Op | None:
    dim = random.randrange(len(a.shape))
    if a.shape[dim] < 4:
        return None
    length = random.randint(a.shape[dim] // 2, a.shape[dim] - 1)
    start = random.randint(0, a.shape[dim] - length)
    return free_of_weights("slice", replaced(a.shape, dim, length), a.bound, torch.narrow,
                           dim=dim, start=start, length=length)  # fmt: skip


def _index_select(random: Random, a: Value) -> Op | None:
    dim = random.randrange(len(a.shape))
    if a.shape[dim] < 2:
        return None
    chosen = torch.tensor([random.randrange(a.shape[dim]) for _ in range(a.shape[dim])], device=device())
    return free_of_weights("index_select", a.shape, a.bound, torch.index_select, dim=dim, index=chosen)


def _topk(random: Random, a: Value) -> Op | None:
    dim = random.randrange(len(a.shape))
    if a.shape[dim] < 4:
        return None
    return free_of_weights("topk", replaced(a.shape, dim, a.shape[dim] // 2), a.bound,
                           lambda x, k, dim: x.topk(k, dim=dim).values, k=a.shape[dim] // 2, dim=dim)  # fmt: skip


def _glu(random: Random, a: Value) -> Op | None:
    dim = random.randrange(len(a.shape))
    if a.shape[dim] % 2:
        return None
    return free_of_weights("glu", replaced(a.shape, dim, a.shape[dim] // 2), a.bound, F.glu, dim=dim)


def _pad(random: Random, a: Value) -> Op:
    before, after = random.randint(0, 2), random.randint(1, 2)
    output = replaced(a.shape, len(a.shape) - 1, a.shape[-1] + before + after)
    return free_of_weights("pad", output, a.bound, F.pad, pad=(before, after))


def _tril(random: Random, a: Value) -> Op | None:
    return free_of_weights("tril", a.shape, a.bound, torch.tril) if len(a.shape) >= 2 else None


def _repeat(random: Random, a: Value) -> Op:
    dim = random.randrange(len(a.shape))
    times = replaced((1,) * len(a.shape), dim, 2)
    return free_of_weights("repeat", replaced(a.shape, dim, 2 * a.shape[dim]), a.bound,
                           lambda x, times: x.repeat(times), times=times)  # fmt: skip


LAYOUT = (
    Rule("transpose", 1, _transpose), Rule("contiguous", 1, _permute), Rule("reshape", 1, _reshape),
    Rule("unsqueeze", 1, _unsqueeze), Rule("squeeze", 1, _squeeze), Rule("expand", 1, _expand),
    Rule("slice", 1, _slice), Rule("index_select", 1, _index_select), Rule("topk", 1, _topk), Rule("glu", 1, _glu),
    Rule("pad", 1, _pad), Rule("tril", 1, _tril), Rule("repeat", 1, _repeat),
)  # fmt: skip


# --- two inputs ------------------------------------------------------------------------------------------------------


def _binary(name: str, function: Callable[..., torch.Tensor], bound: Callable[[float, float], float]) -> Rule:
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
    _binary("add", torch.add, lambda x, y: x + y),
    _binary("sub", torch.sub, lambda x, y: x + y),
    _binary("mul", torch.mul, lambda x, y: x * y),
    _binary("div", lambda a, b: a / (1 + b.abs()), lambda x, y: x),
    _binary("maximum", torch.maximum, max),
    _binary("minimum", torch.minimum, max),
    _binary("where", lambda a, b: torch.where(a > b, a, b * 0.5), max),
    Rule("cat", 2, _cat),
    Rule("stack", 2, _stack),
)
