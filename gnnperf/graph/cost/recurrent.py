"""Recurrent layers as one op: gates of all time steps.

A step of a layer multiplies its input and its state with the gates' weights [G H, I] and [G H, H]; the elementwise rest
is some ten FLOPs per element of a state (Hochreiter and Schmidhuber 1997; Cho et al. 2014) and counts like that.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import OpCall, Tensor, UnknownCost

# Work: what a cost formula returns, and the small arithmetic that formulas share.


class Work(NamedTuple):
    """FLOPs executed and bytes moved to and from memory, each operand counted once per pass over it.

    A multiply-add counts two (the convention of torch.utils.flop_counter). `assumed` names what the trace does not say
    and the formula took for granted.
    """

    flops: float
    bytes: float
    assumed: tuple[str, ...] = ()


Formula = Callable[[OpCall], Work]


def broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Shape after broadcasting (numpy's rule)."""
    width = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (width - len(s)) + s for s in shapes]
    result = tuple(_common(sizes) for sizes in zip(*padded, strict=True))
    return result


def _common(sizes: tuple[int, ...]) -> int:
    wide = {s for s in sizes if s != 1}
    if len(wide) > 1:  # a batch of ops recorded with shapes that do not belong together
        raise UnknownCost
    return wide.pop() if wide else 1


def result_dtype_bytes(tensors: list[Tensor]) -> int:
    """Bytes of an output element: the widest floating dtype wins; 0-dim tensors do not widen others (torch's rule)."""
    ranked = [t for t in tensors if t.shape] or tensors
    floating = [t for t in ranked if "float" in t.dtype or "complex" in t.dtype]
    return max((t.item_bytes for t in floating or ranked), default=0)


def total_bytes(*tensors: Tensor | None) -> float:
    """Bytes of the tensors that are there."""
    return float(sum(t.num_bytes for t in tensors if t is not None))


FAMILY = OpFamily.GEMM
GATE_FLOPS = 10.0  # per element of a state and step, next to the products
BACKWARD_PASSES = 2.0  # gradients of inputs and of weights


def layer(passes: float) -> Formula:
    """mkldnn_rnn_layer(x [T, B, I], w_ih [G H, I], w_hh [G H, H], b_ih, b_hh, hx [B, H], cx [B, H], ...)."""

    def formula(call: OpCall) -> Work:
        weights = [call.tensor(1), call.tensor(2)]
        return _work(call.tensor(0), weights, passes)

    return formula


def stack(passes: float) -> Formula:
    """_cudnn_rnn(x [T, B, I], weights of all layers and directions, ...): matrices are the weights of gates."""

    def formula(call: OpCall) -> Work:
        return _work(call.tensor(0), [w for w in call.tensor_list(1) if len(w.shape) == 2], passes)

    return formula


def _work(x: Tensor, weights: list[Tensor], passes: float) -> Work:
    """Weights are read once (a core keeps them over the steps), inputs and states go through once per pass."""
    if len(x.shape) != 3 or not weights or any(len(w.shape) != 2 for w in weights):
        raise UnknownCost
    rows = prod(x.shape[:2])  # time steps x samples, in either order
    states = rows * sum(w.shape[1] for w in weights[1::2])  # elements of all layers' states
    flops = 2.0 * rows * sum(w.numel for w in weights) + GATE_FLOPS * states
    moved = total_bytes(x, *weights) + 2.0 * states * x.item_bytes
    return Work(passes * flops, passes * moved)


FORMULAS: dict[str, Formula] = {
    "aten::mkldnn_rnn_layer": layer(1.0),
    "aten::mkldnn_rnn_layer_backward": layer(BACKWARD_PASSES),
    "aten::_cudnn_rnn": stack(1.0),
    "aten::_cudnn_rnn_backward": stack(BACKWARD_PASSES),
    "aten::miopen_rnn": stack(1.0),
    "aten::miopen_rnn_backward": stack(BACKWARD_PASSES),
}
