"""Rules of ops that multiply and add over dimensions: products, convolutions, pooling, norms, attention."""

from collections.abc import Callable
from math import prod
from random import Random

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.op_rules import (
    CHANNELS,
    WIDTHS,
    Apply,
    Function,
    Op,
    Rule,
    Shifted,
    Value,
    free_of_weights,
)

NORMED = 10.0  # bound of numbers with a mean square of 1
HEAD = 16


def _linear(random: Random, a: Value) -> Op | None:
    inputs, outputs, bias = a.shape[-1], random.choice(WIDTHS), random.random() < 0.5
    if inputs < 4:
        return None
    output = Value((*a.shape[:-1], outputs), a.bound + 1)
    return Op("linear", output, prod(a.shape) * outputs, lambda: nn.Linear(inputs, outputs, bias=bias))


def _shifted(name: str, function: Function, bound: Callable[[float], float]) -> Rule:
    def propose(random: Random, a: Value) -> Op:
        weights = a.shape[random.randrange(len(a.shape)) :]
        return Op(name, Value(a.shape, bound(a.bound)), prod(a.shape), lambda: Shifted(weights, function))

    return Rule(name, 1, propose)


def _matmul(random: Random, a: Value, b: Value) -> Op | None:
    """[..., M, K] x [K, N]."""
    if len(a.shape) < 2 or len(b.shape) != 2 or a.shape[-1] != b.shape[0]:
        return None
    return _scaled("matmul", (*a.shape[:-1], b.shape[1]), a, b, lambda x, y, scale: (x * scale) @ y)


def _bmm(random: Random, a: Value, b: Value) -> Op | None:
    """[B, M, K] x [B, K, N], or [B, N, K] transposed."""
    if len(a.shape) != 3 or len(b.shape) != 3 or a.shape[0] != b.shape[0]:
        return None
    if a.shape[2] == b.shape[1]:
        return _scaled("bmm", (*a.shape[:2], b.shape[2]), a, b, lambda x, y, scale: torch.bmm(x * scale, y))
    if a.shape[2] == b.shape[2]:
        output = (*a.shape[:2], b.shape[1])
        return _scaled("bmm", output, a, b, lambda x, y, scale: torch.bmm(x * scale, y.transpose(1, 2)))
    return None


def _scaled(name: str, output: tuple[int, ...], a: Value, b: Value, function: Function) -> Op:
    """A product over the last dimension of a, scaled by its size so that numbers stay small."""
    return free_of_weights(name, output, a.bound * b.bound, function, float(prod(output) * a.shape[-1]),
                           scale=1 / a.shape[-1])  # fmt: skip


def _attention(random: Random, a: Value) -> Op | None:
    if len(a.shape) != 3 or a.shape[2] % HEAD:
        return None
    batch, sequence, width = a.shape
    causal = random.random() < 0.5

    def attend(x: torch.Tensor) -> torch.Tensor:
        heads = x.reshape(batch, sequence, width // HEAD, HEAD).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, is_causal=causal).transpose(1, 2).flatten(2)

    return free_of_weights("attention", a.shape, a.bound, attend, 2.0 * batch * sequence * sequence * width)


Propose = Callable[[Random, Value], Op | None]


def _on_images(name: str, propose: Propose) -> Rule:
    """Of values [B, C, H, W] of few channels and at least 4 x 4 pixels."""
    return Rule(name, 1, lambda random, a: propose(random, a) if _image(a) else None)


def _image(a: Value) -> bool:
    return len(a.shape) == 4 and min(a.shape[2:]) >= 4 and a.shape[1] <= max(CHANNELS)


def _convolution(name: str, a: Value, output: tuple[int, ...], work: float, build: Callable[[], nn.Module]) -> Op:
    return Op(name, Value(output, a.bound + 1), prod(output) * work, build)


def _conv2d(random: Random, a: Value) -> Op:
    inputs, outputs = a.shape[1], random.choice(CHANNELS)
    kernel, stride = random.choice(((1, 1), (3, 1), (3, 2), (5, 1)))
    output = (a.shape[0], outputs, *((size - 1) // stride + 1 for size in a.shape[2:]))
    return _convolution("conv2d", a, output, inputs * kernel**2,
                        lambda: nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2))  # fmt: skip


def _depthwise(random: Random, a: Value) -> Op:
    channels = a.shape[1]
    return _convolution("conv2d_depthwise", a, a.shape, 9,
                        lambda: nn.Conv2d(channels, channels, 3, padding=1, groups=channels))  # fmt: skip


def _conv_transpose2d(random: Random, a: Value) -> Op:
    inputs, outputs = a.shape[1], random.choice(CHANNELS)
    output = (a.shape[0], outputs, 2 * a.shape[2], 2 * a.shape[3])
    return _convolution("conv_transpose2d", a, output, inputs, lambda: nn.ConvTranspose2d(inputs, outputs, 2, 2))


def _conv1d(random: Random, a: Value) -> Op | None:
    if len(a.shape) != 3 or a.shape[1] < 4:
        return None
    inputs, outputs = a.shape[1], random.choice(CHANNELS)
    output = (a.shape[0], outputs, a.shape[2])
    return _convolution("conv1d", a, output, inputs * 3, lambda: nn.Conv1d(inputs, outputs, 3, padding=1))


def _pooled(name: str, function: Function) -> Rule:
    """Of 2 x 2 pixels."""

    def propose(random: Random, a: Value) -> Op:
        output = (*a.shape[:2], a.shape[2] // 2, a.shape[3] // 2)
        return free_of_weights(name, output, a.bound, function, float(prod(a.shape)), kernel_size=2)

    return _on_images(name, propose)


def _adaptive_avg_pool2d(random: Random, a: Value) -> Op | None:
    size = random.choice((1, 2, 4))
    if not _image(a):
        return None
    return free_of_weights("adaptive_avg_pool2d", (*a.shape[:2], size, size), a.bound, F.adaptive_avg_pool2d,
                           float(prod(a.shape)), output_size=size)  # fmt: skip


def _upsample(random: Random, a: Value) -> Op:
    mode = random.choice(("nearest", "bilinear"))
    output = (*a.shape[:2], 2 * a.shape[2], 2 * a.shape[3])
    return free_of_weights(f"upsample_{mode}", output, a.bound, F.interpolate, scale_factor=2, mode=mode)


def _norm(name: str, work: float, fits: Callable[[Value], bool], build: Callable[[Value], nn.Module]) -> Rule:
    def propose(random: Random, a: Value) -> Op | None:
        return Op(name, Value(a.shape, NORMED), work * prod(a.shape), lambda: build(a)) if fits(a) else None

    return Rule(name, 1, propose)


def _long(a: Value) -> bool:
    return a.shape[-1] >= 8


def _rms_norm(a: Value) -> nn.Module:
    """The weights are float32, and under autocast it does not cast what comes in."""
    return nn.Sequential(Apply(torch.Tensor.float), nn.RMSNorm(a.shape[-1], eps=1e-5))


PRODUCTS = (
    Rule("linear", 1, _linear), Rule("matmul", 2, _matmul), Rule("bmm", 2, _bmm), Rule("attention", 1, _attention),
    Rule("conv1d", 1, _conv1d),
)  # fmt: skip
CONVOLUTIONS = (
    _on_images("conv2d", _conv2d), _on_images("conv2d_depthwise", _depthwise),
    _on_images("conv_transpose2d", _conv_transpose2d), _pooled("max_pool2d", F.max_pool2d),
    _pooled("avg_pool2d", F.avg_pool2d), Rule("adaptive_avg_pool2d", 1, _adaptive_avg_pool2d),
    _on_images("upsample", _upsample),
    _norm("batch_norm", 8.0, _image, lambda a: nn.BatchNorm2d(a.shape[1], track_running_stats=False)),
)  # fmt: skip
WEIGHTED = (
    _norm("layer_norm", 8.0, _long, lambda a: nn.LayerNorm(a.shape[-1])), _norm("rms_norm", 6.0, _long, _rms_norm),
    _norm("group_norm", 8.0, lambda a: len(a.shape) >= 3 and a.shape[1] % 4 == 0 and prod(a.shape[1:]) >= 64,
          lambda a: nn.GroupNorm(4, a.shape[1])),
    _shifted("bias", torch.add, lambda b: b + 1), _shifted("gain", torch.mul, lambda b: b),
)  # fmt: skip
