"""Work: what a cost formula returns, and the small arithmetic that formulas share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gnnperf.graph.cost.op_call import OpCall, Tensor, UnknownCost


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
