"""What a rank's program is made of: ops with a kernel or without, transfers, copies, and waits for them.

Streams order what is on them; an `Await` orders more, as CUDA's events do: what its lane is given next begins when the
event has happened, that is when everything that the event's lane had been given before its `Record` has ended.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property

from gnnperf.core import Phase
from gnnperf.generate.uses import Use
from gnnperf.graph import PROFILER_DTYPES, OpCost, Tensor, op_cost

PROFILER_NAME = {dtype: name for name, dtype in reversed(PROFILER_DTYPES.items())}  # the first of several names
Argument = Tensor | Sequence[tuple[int, ...]] | None  # a tensor, shapes of a list of float32 tensors, or neither


class Group(StrEnum):
    """Who takes part in a transfer."""

    TENSOR = "tensor"  # the shards of one replica of a stage
    CONTEXT = "context"  # the parts of a sample's sequence
    DATA = "data"  # the replicas of one shard, of each part of the sequence
    EXPERT = "expert"  # replicas that hold one layer's experts together
    EXPERT_DATA = "expert_data"  # replicas that hold the same experts
    EMBEDDING = "embedding"  # first and last stage, which both hold the embedding
    NEXT = "next"  # the stage after, round about
    PREVIOUS = "previous"  # the stage before


class Lane(IntEnum):
    """The streams of a rank. What is in flight together has its own, so that none waits for another's peer."""

    COMPUTE = 0
    TENSOR = 1
    DATA = 2  # sums over replicas
    EMBEDDING = 3
    SEND_NEXT = 4
    RECV_NEXT = 5
    SEND_PREVIOUS = 6
    RECV_PREVIOUS = 7
    GATHER = 8  # parameters from replicas
    GATHER_INPUT = 9  # copies before it (fully_shard's copy-in stream)
    EXPERT = 10
    OUT = 11  # copies from the device
    IN = 12  # copies to it
    STORAGE_WRITE = 13
    STORAGE_READ = 14
    RETURN_SEND_NEXT = 15  # of chunks that go from the last stage to the first
    RETURN_RECV_NEXT = 16
    RETURN_SEND_PREVIOUS = 17
    RETURN_RECV_PREVIOUS = 18
    CONTEXT = 19


@dataclass(frozen=True)
class Op:
    """One op call that launches one kernel."""

    name: str  # as torch writes it; a fused elementwise kernel is named as inductor names it, its arguments are buffers
    # dims, types, values: JSON as in schema.EVENT_COLUMNS; None: not stated
    dims: str | None
    types: str | None
    values: str | None
    phase: Phase  # part of the step
    lane: Lane = Lane.COMPUTE  # where its kernel runs
    of_weights: bool = False  # its result is a weight's gradient, which nothing but the update waits for
    stated_cost: OpCost | None = None  # FLOPs and bytes of ops whose arguments do not say them

    @cached_property
    def cost(self) -> OpCost:
        """FLOPs and bytes by the formulas that recorded ops have."""
        return self.stated_cost or op_cost(self.name, self.dims, self.types, self.values)


@dataclass(frozen=True)
class Transfer:
    """This rank's part in a collective, or one end of a message."""

    # all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, send, recv; send_recv: each rank to the next one
    kind: str
    group: Group  # who takes part
    message_bytes: float  # that each rank sends: all of its input (of an all-gather that is one part of the result)
    dtype: str  # of the message
    phase: Phase  # part of the step
    awaited: bool  # the kernels after it wait for its end; else only what is on its own stream does
    follows_compute: bool = True  # it waits for the kernels before it; else for events only
    name: str = ""  # of a transfer that ranks match by name, once in a step; "": by order within the group
    busiest_bytes: float | None = None  # that the rank with most of an uneven exchange sends; None: all send as much
    sent_before: bool = False  # of a message that is received: it was sent in the step before


@dataclass(frozen=True)
class Copy:
    """Bytes between device and host, or between host and drive."""

    name: str  # as a profiler writes copies (gnnperf.analytic.predictor.path_of knows the direction by it)
    moved_bytes: float  # that go over
    dtype: str  # of the values
    phase: Phase  # part of the step
    lane: Lane  # where it runs; it waits for events only


@dataclass(frozen=True)
class HostWork:
    """Arithmetic on the host: its thread does it, with all cores."""

    name: str  # of the op
    moved_bytes: float  # read and written in host memory
    phase: Phase  # part of the step


@dataclass(frozen=True)
class HostWait:
    """The host waits until its device has done everything awaited so far."""

    phase: Phase


@dataclass(frozen=True)
class Record:
    """An event: everything that `lane` has been given so far (cudaEventRecord). A later record takes its name over."""

    lane: Lane
    event: str


@dataclass(frozen=True)
class Await:
    """What `lane` is given next waits for the event, if it was recorded (cudaStreamWaitEvent)."""

    lane: Lane
    event: str


@dataclass(frozen=True)
class HostAwait:
    """The host waits for the event (cudaEventSynchronize)."""

    event: str
    phase: Phase


@dataclass(frozen=True)
class Views:
    """Ops one after the other that launch nothing: views and allocations. The host has work with them all the same."""

    names: tuple[str, ...]  # as torch writes them
    phase: Phase  # part of the step


Item = Op | Transfer | Copy | HostWork | HostWait | Record | Await | HostAwait | Views
Line = Item | Use  # an item of a program, or what the op before it does to memory


@dataclass(frozen=True)
class Placed:
    """An item of a program, and which message it is."""

    item: Item  # what is done
    tag: str = ""  # of a message between stages, equal at its two ends; "" for all else, which is matched by order


def op(
    name: str, phase: Phase, *arguments: Argument, values: Sequence[str] | None = None, lane: Lane = Lane.COMPUTE,
    of_weights: bool = False,
) -> Op:  # fmt: skip
    """An op from its arguments."""
    types = json.dumps([PROFILER_NAME[a.dtype] if isinstance(a, Tensor) else "" for a in arguments])
    texts = None if values is None else json.dumps(values)
    return Op(name, json.dumps([_shape(a) for a in arguments]), types, texts, phase, lane, of_weights)


def used(item: Op | Transfer, takes: str = "", **makes: Tensor | int) -> tuple[Line, ...]:
    """An item, and what it does to memory: names of tensors that it takes; of those that it makes, and their bytes."""
    name, of_weights = (item.name, item.of_weights) if isinstance(item, Op) else (item.kind, False)
    sizes = tuple((key, made if isinstance(made, int) else made.num_bytes) for key, made in makes.items())
    return item, Use(name, tuple(takes.split()), sizes, (), of_weights)


def items_of(lines: Iterable[Line]) -> tuple[Item, ...]:
    """What a program is made of."""
    return tuple(line for line in lines if not isinstance(line, Use))


def uses_of(lines: Iterable[Line]) -> tuple[Use, ...]:
    """What an account of memory is made of."""
    return tuple(line for line in lines if isinstance(line, Use))


def fused(name: str, phase: Phase, *buffers: Tensor) -> Op:
    """One elementwise kernel over buffers, each read or written once."""
    return op(f"triton_poi_fused_{name}", phase, *buffers)


def views(phase: Phase, *names: str) -> Views:
    """Ops of torch that launch nothing, without their prefix."""
    return Views(tuple(f"aten::{name}" for name in names), phase)


def collective(kind: str, group: Group, tensor: Tensor, phase: Phase, *, awaited: bool = True) -> Transfer:
    """Over a group, of a rank's whole input; what follows waits for it unless it is stated not to."""
    return Transfer(kind, group, float(tensor.num_bytes), tensor.dtype, phase, awaited)


def _shape(argument: Argument) -> object:
    if argument is None:
        return []
    return list(argument.shape) if isinstance(argument, Tensor) else [list(shape) for shape in argument]


# Copies between a device and what is behind it, on streams of their own (cudaMemcpyAsync from and to pinned memory).
#
#     out   device -- host link --> host -- drive --> storage        in   the same, backwards
#
# To the drives the device's bytes go through pinned memory of the host (DeepSpeed's asynchronous I/O, csrc/aio); both
# ways of a link and of a drive run at the same time.


class Store(StrEnum):
    """Where something lies while it is not used."""

    DEVICE = "device"
    HOST = "host"  # pinned memory, over the device's host link
    NVME = "nvme"  # over the host link, then the node's drives (Rajbhandari et al. 2021, ZeRO-Infinity)


@dataclass(frozen=True)
class Offload:
    """Settings of offloading."""

    # what a layer keeps for its backward pass: all of it, or with full recomputation its input. It is copied out behind
    # the layer's forward pass and fetched one layer ahead (TransformerEngine, cpu_offload.py).
    activations: Store = Store.DEVICE
    # float32 weights and moments; the host then updates (Ren et al. 2021, ZeRO-Offload).
    optimizer: Store = Store.DEVICE


TO_HOST, TO_DEVICE = "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pinned -> Device)"
TO_STORAGE, FROM_STORAGE = "Storage write (Host -> Drive)", "Storage read (Drive -> Host)"
ON_HOST, FROM_DRIVE = "on the host", "read from the drive"


def copy_out(store: Store, moved_bytes: float, dtype: str, phase: Phase) -> Iterator[Item]:
    """From the device to where it is stored; behind what its stream was instructed to wait for."""
    yield Copy(TO_HOST, moved_bytes, dtype, phase, Lane.OUT)
    if store is Store.NVME:
        yield Record(Lane.OUT, ON_HOST)
        yield Await(Lane.STORAGE_WRITE, ON_HOST)
        yield Copy(TO_STORAGE, moved_bytes, dtype, phase, Lane.STORAGE_WRITE)


def copy_in(store: Store, moved_bytes: float, dtype: str, phase: Phase) -> Iterator[Item]:
    """Back to the device."""
    if store is Store.NVME:
        yield Copy(FROM_STORAGE, moved_bytes, dtype, phase, Lane.STORAGE_READ)
        yield Record(Lane.STORAGE_READ, FROM_DRIVE)
        yield Await(Lane.IN, FROM_DRIVE)
    yield Copy(TO_DEVICE, moved_bytes, dtype, phase, Lane.IN)


def stored(store: Store) -> Lane:
    """Where the last copy of copy_out runs."""
    return Lane.STORAGE_WRITE if store is Store.NVME else Lane.OUT


def fetching(store: Store) -> Lane:
    """Where the first copy of copy_in runs."""
    return Lane.STORAGE_READ if store is Store.NVME else Lane.IN
