"""What a rank's program is made of: ops with a kernel or without, transfers, and waits of the host for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from gnnperf.graph.cost.op_call import DTYPE_BYTES, PROFILER_DTYPES, Tensor
from gnnperf.graph.cost.table import OpCost, op_cost
from gnnperf.schema import Phase

PROFILER_NAME = {dtype: name for name, dtype in reversed(PROFILER_DTYPES.items())}  # the first of several names
NO_TENSOR: tuple[int, ...] = ()
Argument = Tensor | Sequence[tuple[int, ...]] | None  # a tensor, shapes of a list of float32 tensors, or neither


class Group(StrEnum):
    """Who takes part in a transfer."""

    TENSOR = "tensor"  # the shards of one replica of a stage
    DATA = "data"  # the replicas of one shard
    EMBEDDING = "embedding"  # first and last stage, which both hold the embedding
    NEXT = "next"  # the stage after, round about
    PREVIOUS = "previous"  # the stage before


@dataclass(frozen=True)
class Op:
    """One op call that launches one kernel.

    Attributes:
        name: as torch writes it; a fused elementwise kernel is named as inductor names it, its arguments are buffers.
        dims, types, values: JSON as in schema.EVENT_COLUMNS.
        phase: part of the step.
    """

    name: str
    dims: str
    types: str
    values: str | None
    phase: Phase

    @cached_property
    def cost(self) -> OpCost:
        """FLOPs and bytes by the formulas that recorded ops have."""
        return op_cost(self.name, self.dims, self.types, self.values)


@dataclass(frozen=True)
class Transfer:
    """This rank's part in a collective, or one end of a message.

    Attributes:
        kind: all_reduce, broadcast, send or recv.
        group: who takes part.
        message_bytes: that each rank sends.
        dtype: of the message.
        phase: part of the step.
        awaited: the kernels after it wait for its end; else only what is on its own stream does.
    """

    kind: str
    group: Group
    message_bytes: float
    dtype: str
    phase: Phase
    awaited: bool


@dataclass(frozen=True)
class HostWait:
    """The host waits until its device has done everything awaited so far."""

    phase: Phase


@dataclass(frozen=True)
class Views:
    """Ops one after the other that launch nothing: views and allocations. The host has work with them all the same.

    Attributes:
        names: as torch writes them.
        phase: part of the step.
    """

    names: tuple[str, ...]
    phase: Phase


Item = Op | Transfer | HostWait | Views


@dataclass(frozen=True)
class Placed:
    """An item of a program, and which message it is.

    Attributes:
        item: what is done.
        tag: of a message between stages, equal at its two ends; "" for all else, which is matched by order.
    """

    item: Item
    tag: str = ""


def op(name: str, phase: Phase, *arguments: Argument, values: Sequence[str] | None = None) -> Op:
    """An op from its arguments."""
    return Op(
        name,
        json.dumps([_shape(a) for a in arguments]),
        json.dumps([PROFILER_NAME[a.dtype] if isinstance(a, Tensor) else "" for a in arguments]),
        None if values is None else json.dumps(values),
        phase,
    )


def fused(name: str, phase: Phase, *buffers: Tensor) -> Op:
    """One elementwise kernel over buffers, each read or written once."""
    return op(f"triton_poi_fused_{name}", phase, *buffers)


def views(phase: Phase, *names: str) -> Views:
    """Ops of torch that launch nothing, without their prefix."""
    return Views(tuple(f"aten::{name}" for name in names), phase)


def all_reduce(group: Group, tensor: Tensor, phase: Phase, *, awaited: bool = True) -> Transfer:
    """A sum over a group; what follows waits for it unless it is said not to."""
    return Transfer("all_reduce", group, float(tensor.numel * DTYPE_BYTES[tensor.dtype]), tensor.dtype, phase, awaited)


def _shape(argument: Argument) -> object:
    if argument is None:
        return []
    return list(argument.shape) if isinstance(argument, Tensor) else [list(shape) for shape in argument]
