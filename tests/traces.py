"""Hand-made traces of a few events, so that a test reads like a timeline.

    run_of(trace(
        op("aten::mm", 0, 50),                                  host    |  aten::mm            |
        call("cudaLaunchKernel", 10, 20, corr=1),                          |launch|
        kernel("gemm", 25, 125, corr=1),                        device       |----- gemm -----|
    ))
Times are microseconds; a `corr` ties device work to its call, as in a profiler's file.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from gnnperf.core import DEVICE_KINDS, EventKind, Link, schema
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.trace.table import DeviceInfo, RunTrace, TraceMeta, TraceTable

MAIN = 1  # the thread of host events unless given otherwise
STREAM = 7
_DEFAULTS: dict[str, object] = {
    "thread": -1, "device": -1, "stream": -1, "correlation": -1, "external_id": -1, "sequence": -1,
    "forward_event": -1, "op_event": -1, "launch_event": -1, "link": None, "wait_event": -1, "waiting_stream": -1,
    "input_dims": None, "input_types": None, "input_values": None, "bytes": np.nan, "collective": None, "group": None,
    "group_size": -1, "in_elements": np.nan, "out_elements": np.nan, "comm_dtype": None,
    "grid": None, "block": None, "registers": -1, "shared_bytes": -1, "occupancy_percent": -1,
}  # fmt: skip
_ON_DEVICE = {"stream": STREAM, "device": 0}


@dataclass
class Event:
    """One event; `columns` overrides the defaults of schema.EVENT_COLUMNS."""

    kind: EventKind
    name: str
    start_us: float
    end_us: float
    columns: dict[str, object] = field(default_factory=dict)
    forward: str | None = None  # name of the forward op of a backward op

    @property
    def nanoseconds(self) -> tuple[int, int]:
        """Start and duration."""
        start = round(self.start_us * 1000)
        return start, round(self.end_us * 1000) - start


def op(
    name: str, start_us: float, end_us: float, *, thread: int = MAIN, forward: str | None = None, **columns: object
) -> Event:
    """An operator on a host thread."""
    return Event(EventKind.CPU_OP, name, start_us, end_us, {"thread": thread, **columns}, forward)


def mark(number: int, start_us: float, end_us: float, *, thread: int = MAIN) -> Event:
    """ProfilerStep#number."""
    return annotation(f"ProfilerStep#{number}", start_us, end_us, thread=thread)


def annotation(name: str, start_us: float, end_us: float, *, thread: int = MAIN, **columns: object) -> Event:
    """A named range on a host thread."""
    return Event(EventKind.ANNOTATION, name, start_us, end_us, {"thread": thread, **columns})


def call(name: str, start_us: float, end_us: float, *, corr: int = -1, thread: int = MAIN, **columns: object) -> Event:
    """A runtime call."""
    return Event(EventKind.RUNTIME, name, start_us, end_us, {"thread": thread, "correlation": corr, **columns})


def kernel(name: str, start_us: float, end_us: float, **columns: object) -> Event:
    """A kernel; `corr` ties it to its call; one that no call of the trace has means: launched before the window."""
    corr = columns.pop("corr", -1)
    return Event(EventKind.KERNEL, name, start_us, end_us, {**_ON_DEVICE, "correlation": corr, **columns})


def copy(name: str, start_us: float, end_us: float, **columns: object) -> Event:
    """A memcpy or memset, e.g. "Memcpy HtoD (Pageable -> Device)"; otherwise like a kernel."""
    return replace(kernel(name, start_us, end_us, **columns), kind=EventKind.MEMCPY)


def all_reduce(
    start_us: float,
    end_us: float,
    *,
    corr: int = -1,
    elements: float = 256.0,
    size: int = 2,
    kind: str = "all_reduce",
    **columns: object,
) -> Event:
    """The kernel of a collective in a group of `size` ranks, float32, on stream 20."""
    stated = {"collective": kind, "group": str(list(range(size))).replace(" ", ""), "group_size": size,
              "in_elements": elements, "out_elements": elements, "comm_dtype": "float32", "stream": 20}  # fmt: skip
    return kernel("ncclDevKernel_AllReduce", start_us, end_us, corr=corr, **(stated | columns))


def sync_event(start_us: float, end_us: float, *, corr: int, stream: int, device: int = 0) -> Event:
    """A cuda_sync event: the call with this correlation waited for `stream`."""
    return Event(
        EventKind.SYNC, "Stream Sync", start_us, end_us, {"correlation": corr, "stream": stream, "device": device}
    )


def trace(
    *events: Event, rank: int = 0, world_size: int = 1, base_us: float = 0.0, backend: str = "nccl"
) -> TraceTable:
    """The TraceTable of one rank: rows sorted, device work linked to its call and to the innermost op around that."""
    rows = sorted(events, key=lambda e: (e.nanoseconds[0], -e.nanoseconds[1]))
    frame = pd.DataFrame([_row(i, e) for i, e in enumerate(rows)], columns=[c.name for c in schema.EVENT_COLUMNS])
    for i, event in enumerate(rows):
        _link(frame, rows, i, event)
    for column in schema.EVENT_COLUMNS:
        if column.dtype == "category":
            frame[column.name] = _text(frame[column.name].tolist())
    meta = TraceMeta(rank, "metadata", world_size, "kineto", f"rank{rank}.json", "0" * 64, round(base_us * 1000),
                     devices=(DeviceInfo("Toy GPU"),), backend=backend)  # fmt: skip
    return TraceTable(meta, frame.astype({c.name: c.dtype for c in schema.EVENT_COLUMNS}))


def run_of(*tables: TraceTable) -> RunTrace:
    """A run of these ranks."""
    return RunTrace("toy", tables)


def graph_of(*events: Event) -> ExecutionGraph:
    """The graph of one rank."""
    return build_graph(run_of(trace(*events)))


def counts(graph: ExecutionGraph) -> dict[str, int]:
    """What building counted."""
    assert graph.counts is not None
    return dict(graph.counts)


def _row(number: int, event: Event) -> dict[str, object]:
    start, duration = event.nanoseconds
    return {**_DEFAULTS, "event_id": number, "kind": str(event.kind), "name": event.name, "start_ns": start,
            "duration_ns": duration, **event.columns}  # fmt: skip


def _link(frame: pd.DataFrame, rows: list[Event], i: int, event: Event) -> None:
    """Fill op_event, launch_event, link and forward_event of one row, as gnnperf.trace does."""
    if event.forward is not None:
        frame.loc[i, "forward_event"] = next(j for j, e in enumerate(rows) if e.name == event.forward)
    if event.kind == EventKind.RUNTIME:
        frame.loc[i, "op_event"] = _innermost_op(rows, i)
    if event.kind not in DEVICE_KINDS:
        return
    corr = event.columns["correlation"]
    launch = [j for j, e in enumerate(rows) if e.kind == EventKind.RUNTIME and e.columns["correlation"] == corr != -1]
    if launch:
        frame.loc[i, ["launch_event", "op_event"]] = launch[0], _innermost_op(rows, launch[0])
    result = Link.CORRELATION if launch else Link.BEFORE_WINDOW if corr != -1 else Link.NONE
    frame["link"] = frame["link"].astype(object)
    frame.loc[i, "link"] = str(result)


def _innermost_op(rows: list[Event], i: int) -> int:
    inner, thread = rows[i], rows[i].columns["thread"]
    around = [
        j for j, e in enumerate(rows)
        if e.kind == EventKind.CPU_OP and e.columns["thread"] == thread
        and e.start_us <= inner.start_us and inner.end_us <= e.end_us
    ]  # fmt: skip
    return min(around, key=lambda j: rows[j].end_us - rows[j].start_us, default=-1)


def _text(values: list[object]) -> pd.Categorical:
    known = list(dict.fromkeys(str(v) for v in values if isinstance(v, str)))
    codes = [known.index(v) if isinstance(v, str) else -1 for v in values]
    return pd.Categorical.from_codes(codes, categories=pd.Index(known, dtype="str"))
