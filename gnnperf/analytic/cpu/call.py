"""One call of an op on a CPU, and what every family counts alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

CACHE_BYTES = 2.0**23  # beyond it a tensor comes from memory: a virtual machine's share of the last level, about
FAR_SHARPNESS = 6.0  # a sweep leaves the cache at once
ITEM_BYTES = 4.0

Shape = list[Any]  # numbers, or shapes where the argument is a list of tensors
Counts = Mapping[str, float]


@dataclass(frozen=True)
class Call:
    """One call: its name after `::`, its shapes, and what the cost formula says.

    Attributes:
        op: name without namespace.
        dims: shapes of the arguments.
        flops, moved_bytes: of the whole call.
        between_bytes: what the thread moved since it last ran this op.
    """

    op: str
    dims: tuple[Shape, ...]
    flops: float
    moved_bytes: float
    between_bytes: float = 0.0


def streamed(call: Call) -> Counts:
    """A sweep over tensors: FLOPs, bytes, and those beyond the cache."""
    return {"call": 1.0, "flop": call.flops, "byte": call.moved_bytes, "far_byte": far_bytes(call)}


def far_bytes(call: Call) -> float:
    """Bytes of a sweep that come from memory."""
    return beyond(call.moved_bytes, CACHE_BYTES, FAR_SHARPNESS) * call.moved_bytes


def beyond(num_bytes: float, cache_bytes: float, sharpness: float) -> float:
    """Share that a cache no longer holds."""
    return 1.0 / (1.0 + min(cache_bytes / max(num_bytes, 1.0), 1e6) ** sharpness)


def is_shape(found: Shape | None) -> bool:
    """Of one tensor with at least one dimension: not a list of tensors."""
    return bool(found) and not isinstance(found[0], list)  # type: ignore[index]


def first_shape(call: Call) -> Shape:
    """Of the first tensor argument; [] none."""
    return next((d for d in call.dims if is_shape(d)), [])


def leading(shape: Shape) -> float:
    """Rows of a tensor: its elements over its last dimension."""
    return float(prod(shape[:-1]))
