"""One rank's events as numpy arrays on the run's clock, with host nesting resolved."""

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from gnnperf.core import DEVICE_KINDS, EventKind, Phase, schema
from gnnperf.trace import TraceTable, innermost, sorted_rows

# What each runtime call does to the schedule. A table of exact names; what is not in it only costs host time.


class CallClass(IntEnum):
    """How a runtime call takes part in the schedule."""

    OTHER = 0  # costs host time only
    LAUNCH = 1  # starts device work
    GRAPH_LAUNCH = 2  # starts many kernels at once
    SYNC_DEVICE = 3  # returns when all earlier device work has ended
    SYNC_STREAM = 4  # ... the work of one stream
    SYNC_EVENT = 5  # ... the work before one event
    ALLOCATE = 6  # cudaMalloc, cudaFree: synchronise when the allocator needs it
    RECORD_EVENT = 7  # marks a point in a stream
    WAIT_EVENT = 8  # makes a stream wait for a mark
    COPY_AND_WAIT = 9  # starts a copy and returns when it has ended
    BEGIN_CAPTURE = 10  # from here on launches are noted down in a graph and start nothing
    END_CAPTURE = 11
    ELAPSED_TIME = 12  # between two events: both have happened, and whoever calls it has waited for them


BLOCKING = (CallClass.SYNC_DEVICE, CallClass.SYNC_STREAM, CallClass.SYNC_EVENT, CallClass.ALLOCATE)
SYNCHRONIZING = (CallClass.SYNC_DEVICE, CallClass.SYNC_STREAM, CallClass.SYNC_EVENT)
# Calls that become a T4 node. An allocation is a miss of the caching allocator: it differs from step to step, so it is
# latency of the segment that contains it, not structure.
SEGMENTING = (*SYNCHRONIZING, CallClass.LAUNCH, CallClass.GRAPH_LAUNCH, CallClass.COPY_AND_WAIT, CallClass.ELAPSED_TIME)

_NAMES: dict[CallClass, tuple[str, ...]] = {
    CallClass.LAUNCH: (
        "LaunchKernel", "LaunchKernelExC", "LaunchKernelExC_v11060", "LaunchCooperativeKernel", "ExtLaunchKernel",
        "ModuleLaunchKernel", "ExtModuleLaunchKernel", "HccModuleLaunchKernel", "ExtModuleLaunchCooperativeKernel",
        "LaunchCooperativeKernelMultiDevice", "ExtLaunchMultiKernelMultiDevice", "LaunchKernelEx",
        "MemcpyAsync", "Memcpy2DAsync", "Memcpy3DAsync", "MemcpyPeer", "MemcpyPeerAsync", "MemcpyHtoDAsync",
        "MemcpyDtoHAsync", "MemcpyDtoDAsync", "MemcpyToSymbolAsync",
        "MemcpyBatchAsync", "Memcpy3DBatchAsync", "Memcpy3DPeerAsync", "Memset3DAsync", "MemsetD16Async",
        "Memset", "MemsetAsync", "Memset2DAsync", "MemsetD8Async", "MemsetD32Async",
        "LaunchByPtr", "LaunchHostFunc",
    ),
    CallClass.GRAPH_LAUNCH: ("GraphLaunch",),
    CallClass.COPY_AND_WAIT: ("Memcpy", "Memcpy2D", "Memcpy3D", "MemcpyWithStream", "MemcpyHtoD", "MemcpyDtoH"),
    CallClass.SYNC_DEVICE: ("DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize"),
    CallClass.SYNC_STREAM: ("StreamSynchronize",),
    CallClass.SYNC_EVENT: ("EventSynchronize",),
    CallClass.ALLOCATE: ("Malloc", "Free", "MallocHost", "FreeHost", "HostAlloc", "HostFree", "MallocManaged",
                         "HostMalloc", "HostRegister", "HostUnregister"),
    CallClass.RECORD_EVENT: ("EventRecord", "EventRecordWithFlags"),
    CallClass.WAIT_EVENT: ("StreamWaitEvent",),
    CallClass.BEGIN_CAPTURE: ("StreamBeginCapture", "StreamBeginCaptureToGraph"),
    CallClass.END_CAPTURE: ("StreamEndCapture",),
    CallClass.ELAPSED_TIME: ("EventElapsedTime",),
}  # fmt: skip

CALL_CLASS: dict[str, CallClass] = {
    prefix + name + suffix: call_class
    for call_class, names in _NAMES.items()
    for name in names
    for prefix in ("cuda", "cu", "hip")
    for suffix in ("", "_ptsz", "_spt", "_v2")
}


def call_class(name: str) -> CallClass:
    """The class of a runtime call by its exact name (cuda…, cu…, hip…)."""
    return CALL_CLASS.get(name, CallClass.OTHER)


_DISPATCHER_OP = re.compile(r"[A-Za-z_]\w*::[\w.]+")
_COMM_CALL = re.compile(r"c10d::|_c10d_functional(?:_autograd)?::wait_tensor$")
PHASES = tuple(sorted(Phase))
BACKWARD, FORWARD, OPTIMIZER = map(PHASES.index, (Phase.BACKWARD, Phase.FORWARD, Phase.OPTIMIZER))
MOST_NAMES = 1 << 14  # of all ranks of a run, which share them
STEP_MARK = re.compile(r"ProfilerStep#?\s*(\d+)")


@dataclass(frozen=True)
class RankEvents:
    """Arrays of length num_events, in the order of the TraceTable."""

    table: TraceTable  # the rank's TraceTable
    rank: int
    start_ns: np.ndarray  # int64, relative to the run's base time
    end_ns: np.ndarray  # int64, likewise
    calls: np.ndarray  # CallClass of runtime calls, OTHER elsewhere
    is_device: np.ndarray  # device work
    thread: np.ndarray

    def is_kind(self, *kinds: EventKind) -> np.ndarray:
        """[num_events] bool: events of one of these kinds."""
        return by_category(self.table.events["kind"], kinds.__contains__, bool)

    @cached_property
    def name(self) -> np.ndarray:
        """[num_events] str objects."""
        return self.column("name")

    @cached_property
    def is_op(self) -> np.ndarray:
        """[num_events] bool: operators."""
        return self.is_kind(EventKind.CPU_OP)

    @property
    def parent(self) -> np.ndarray:
        """Innermost enclosing host event of the same thread; -1 none."""
        return self._nested[0]

    @property
    def op(self) -> np.ndarray:
        """Outermost operator that is not a mere scope (Lin et al.'s "op"); -1 between ops."""
        return self._nested[1]

    @cached_property
    def _nested(self) -> tuple[np.ndarray, np.ndarray]:
        events = self.table.events
        dispatcher = by_category(events["name"], is_dispatcher_op, bool)
        comm_call = by_category(events["name"], lambda n: bool(_COMM_CALL.match(n)), bool) & (not self.is_device.any())
        # The range of a send or receive lasts until it is waited for, across whatever its thread does meanwhile.
        is_scope = ~by_category(events["name"], is_host_transfer, bool)
        on_host = np.flatnonzero(~self.is_device & (self.thread >= 0) & is_scope)
        flags = self.is_op, self.is_kind(EventKind.RUNTIME), dispatcher, comm_call
        return _nest(self.start_ns, self.end_ns, self.thread, flags, on_host)

    @cached_property
    def call(self) -> np.ndarray:
        """The call that becomes a T4 that each call is or lies inside of; -1 none."""
        candidate = np.isin(self.calls, [int(c) for c in SEGMENTING])
        launched = self.column("launch_event")
        candidate[launched[launched >= 0]] = True  # whatever starts device work is a launch, under any name
        candidate &= self.thread >= 0
        outer = np.where(candidate, np.arange(len(candidate)), -1)
        while True:
            inside = (outer >= 0) & (self.parent[outer] >= 0)
            inside &= candidate[np.where(inside, self.parent[outer], 0)]
            if not inside.any():
                return outer
            outer = np.where(inside, self.parent[outer], outer)

    @cached_property
    def segmenting_calls(self) -> np.ndarray:
        """Event ids of runtime calls that become T4; a call inside another (driver in runtime) belongs to it."""
        return np.flatnonzero(self.call == np.arange(len(self.call)))

    @cached_property
    def phase(self) -> np.ndarray:
        """Place in PHASES: that of an event's own name, else that of the range around it, else forward."""
        code = by_category(self.table.events["name"], _named_phase, np.int8)
        code[(self.column("forward_event") >= 0) & (code < 0)] = BACKWARD
        while True:
            inherits = (code < 0) & (self.parent >= 0)
            inherited = np.where(inherits, code[self.parent], -1)
            if (inherited < 0).all():
                return np.where(code < 0, FORWARD, code)
            code = np.where(inherits, inherited, code)

    def column(self, name: str, at: np.ndarray | slice = slice(None)) -> np.ndarray:
        """[n] a column of the TraceTable, of all events or `at` some; categories as objects, missing as None."""
        series = self.table.events[name]
        is_text = isinstance(series.dtype, pd.CategoricalDtype)
        return decode(series, at) if is_text else np.asarray(series.to_numpy()[at])


def decode(series: pd.Series, at: np.ndarray | slice = slice(None)) -> np.ndarray:
    """[n] object array of a categorical's values, of all rows or `at` some; missing as None."""
    categories = np.array([*schema.categories_of(series), None], dtype=object)  # [num_categories + 1]
    return categories[schema.codes_of(series)[at]]  # code -1 takes the appended None


def by_category(series: pd.Series, function, dtype) -> np.ndarray:  # type: ignore[no-untyped-def]
    """[n] `function` of each value, computed once per category; missing gives function("")."""
    values = [function(text) for text in [*schema.categories_of(series), ""]]
    return np.asarray(values, dtype=dtype)[schema.codes_of(series)]


@lru_cache(MOST_NAMES)
def _named_phase(name: str) -> int:
    """Place in PHASES; -1 if the name shows nothing."""
    if name.startswith(("Optimizer.", "## optimizer", "## zero_grad")):
        return OPTIMIZER
    if name.startswith(("autograd::engine::", "torch::autograd::", "## backward")) or name.endswith("Backward0"):
        return BACKWARD
    return FORWARD if name.startswith("## forward") else -1


@lru_cache(MOST_NAMES)
def is_dispatcher_op(name: str) -> bool:
    """Whether the name is an operator of the dispatcher (aten::mm) rather than a range around operators."""
    return _DISPATCHER_OP.fullmatch(name) is not None and not name.startswith(("autograd::", "torch::autograd"))


def is_host_transfer(name: str) -> bool:
    """Whether the name is a range that gloo records: of a worker thread, or of a send or receive."""
    return name.startswith("gloo:")


def rank_events(table: TraceTable, base_time_ns: int) -> RankEvents:
    """The rank's events on the run's clock."""
    events = table.events
    start = events["start_ns"].to_numpy() + (table.meta.base_time_ns - base_time_ns)
    end = start + events["duration_ns"].to_numpy()
    is_device = by_category(events["kind"], lambda k: k in DEVICE_KINDS, bool)
    is_call = by_category(events["kind"], lambda k: k == EventKind.RUNTIME, bool)
    calls = np.where(is_call, by_category(events["name"], call_class, np.int8), CallClass.OTHER)
    thread = events["thread"].to_numpy()
    return RankEvents(table, table.meta.rank, start, end, calls, is_device, thread)


def _nest(
    start: np.ndarray, end: np.ndarray, thread: np.ndarray, flags: tuple[np.ndarray, ...], on_host: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Parent and op of every host event; see RankEvents.

    A named range around ops is a scope, a leaf is an op. Where collectives run on host threads, an operator around one
    (of a DTensor) is a scope too: what it runs before and after the wait are different pieces of time.

    `flags` are is_op, is_call, dispatcher and comm_call, [num_events] bool each; `on_host` are event ids.
    """
    is_op, is_call, dispatcher, comm_call = flags
    lift = pd.factorize(thread)[0] * (int(end.max()) - int(start.min()) + 1)  # puts threads one after the other
    begin, stop = start + lift, end + lift
    order = on_host[sorted_rows(begin[on_host], lambda rows: (is_call[on_host[rows]], -stop[on_host[rows]]))]
    parent = _parents(order, begin, stop, is_call)
    has_child_op = np.zeros(len(start), dtype=bool)  # [num_events]
    children = np.flatnonzero(is_op & (parent >= 0))
    has_child_op[parent[children]] = True
    opens = is_op & (dispatcher | ~has_child_op) & ~_around(comm_call, parent)
    # The outermost event that opens an op, among each event and those around it.
    best = np.append(np.where(opens, np.arange(len(opens)), -1), -1)  # [num_events + 1]
    ancestor = np.append(parent, -1)
    while (ancestor >= 0).any():  # each round looks twice as far up
        best = np.where(best[ancestor] >= 0, best[ancestor], best)
        ancestor = ancestor[ancestor]
    return parent, best[:-1]


def _around(inner: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """[num_events] bool: events that contain one of `inner` [num_events] bool."""
    result = np.zeros(len(parent), dtype=bool)
    current = parent[inner]
    while len(current := np.unique(current[current >= 0])):
        current = current[~result[current]]
        result[current] = True
        current = parent[current]
    return result


def _parents(order: np.ndarray, start: np.ndarray, end: np.ndarray, is_call: np.ndarray) -> np.ndarray:
    """[num_events] innermost event that contains each event of `order` (by start, longer first); -1 none.

    Threads lie one after the other. A range that partly overlaps another does not contain it; nor does a runtime call
    contain what begins where it ends.
    """
    begin, stop, call = start[order], end[order], is_call[order]  # [num_ordered] each
    before = np.arange(-1, len(order) - 1)
    before[np.r_[True, stop[1:] > np.maximum.accumulate(stop[:-1])][: len(order)]] = -1  # outermost

    def contain(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        return np.asarray((stop[outer] >= stop[inner]) & ((stop[outer] > begin[inner]) | ~call[outer]))

    parent = np.full(len(start), -1, dtype=np.int64)
    parent[order] = np.append(order, -1)[innermost(before, contain)]
    return parent
