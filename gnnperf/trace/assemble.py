"""Decoded events -> one sorted table of one rank, before linking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnperf import schema
from gnnperf.schema import EventKind
from gnnperf.trace import kineto
from gnnperf.trace.columns import (
    categorical,
    float_column,
    int_column,
    json_column,
    lane_column,
    ns_column,
    text_column,
    thread_column,
)
from gnnperf.trace.kineto import Decoded, DeviceArgs, Event, HostArgs, RuntimeArgs
from gnnperf.trace.limits import MAX_NAME_CHARS, MAX_YEARS_NS

KIND_CODES = {kind: code for code, kind in enumerate(EventKind)}
ANNOTATION_NAMES = ("ProfilerStep", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#")
SIDE_COLUMNS = ("forward_thread", "event_index", "record_function")
HOST_KINDS = (EventKind.CPU_OP, EventKind.ANNOTATION, EventKind.RUNTIME)
JSON_COLUMNS = ("input_dims", "input_types", "input_values")


@dataclass(frozen=True)
class Assembled:
    """The rows of one rank, sorted by start, longer first, outer op first.

    Attributes:
        columns: every column of schema.EVENT_COLUMNS that a single event states; arrays or categoricals [num_events].
        kind: [num_events] int8, code of EventKind in KIND_CODES.
        events: the decoded event of each row.
        side: [num_events] int64 each of SIDE_COLUMNS, -1 unknown: needed for linking only.
        base_ns: absolute time of start_ns = 0.
    """

    columns: dict[str, Any]
    kind: np.ndarray
    events: list[Event]
    side: dict[str, np.ndarray]
    base_ns: int

    def is_kind(self, *kinds: EventKind) -> np.ndarray:
        """[num_events] bool: rows of one of these kinds."""
        return np.isin(self.kind, [KIND_CODES[k] for k in kinds])


def assemble(decoded: Decoded) -> Assembled:
    """One table of all kept events; broken ones are dropped and counted in `decoded.dropped`."""
    parts = [_part(kind, rows, decoded.dropped) for kind, rows in decoded.events.items() if rows]
    columns: dict[str, Any] = {
        c.name: _stack(parts, c.name, c.dtype) for c in schema.EVENT_COLUMNS if c.dtype != "category"
    }
    events = [event for part in parts for event in part["events"]]
    kind = _stack(parts, "kind", "int8")
    columns["name"] = text_column([(e.name or "")[:MAX_NAME_CHARS] for e in events])
    kind = _annotations(kind, columns["name"])
    for name in JSON_COLUMNS:
        columns[name] = json_column([raw for p in parts for raw in p.get(name) or [None] * len(p["events"])])
    order = _order(columns, kind, decoded.dropped)
    first = int(columns["start_ns"][order[0]]) if len(order) else 0
    columns["start_ns"] -= first
    columns = {name: values[order] for name, values in columns.items()}
    columns["kind"] = categorical(kind[order], [str(k) for k in EventKind])
    columns["event_id"] = np.arange(len(order), dtype=np.int64)
    side = {name: _stack(parts, name, "int64")[order] for name in SIDE_COLUMNS}
    kept = [events[i] for i in order.tolist()]
    return Assembled(columns, kind[order], kept, side, _base_time_ns(decoded) + first)


def _part(kind: EventKind, events: list[Event], dropped: dict[str, int]) -> dict[str, Any]:
    """The columns that events of one kind fill."""
    part: dict[str, Any] = {
        "events": events,
        "kind": np.full(len(events), KIND_CODES[kind], dtype=np.int8),
        "start_ns": ns_column([e.ts for e in events]),
        "duration_ns": ns_column([e.dur for e in events]),
    }
    missing = [i for i, e in enumerate(events) if e.ts is None or e.dur is None]
    part["duration_ns"][missing] = -1
    if kind in HOST_KINDS:
        part["thread"] = thread_column([e.tid for e in events])
    if kind is EventKind.RUNTIME:
        return part | _runtime(kineto.decode_args(events, RuntimeArgs, dropped))
    if kind in HOST_KINDS:
        return part | _host(kineto.decode_args(events, HostArgs, dropped))
    return part | _device(events, kineto.decode_args(events, DeviceArgs, dropped), kind is EventKind.SYNC)


def _host(args: list[HostArgs]) -> dict[str, Any]:
    return {
        "external_id": int_column([a.external_id for a in args]),
        "sequence": int_column([a.sequence for a in args]),
        "forward_thread": int_column([a.forward_thread for a in args]),
        "event_index": int_column([a.event_index for a in args]),
        "record_function": int_column([a.record_function for a in args]),
        "input_dims": [bytes(a.dims) for a in args],
        "input_types": [bytes(a.types) for a in args],
        "input_values": [bytes(a.values) for a in args],
    }


def _runtime(args: list[RuntimeArgs]) -> dict[str, Any]:
    return {
        "correlation": int_column([a.correlation for a in args]),
        "external_id": int_column([a.external_id if a.external_id is not None else a.external_id_2021 for a in args]),
    }


def _device(events: list[Event], args: list[DeviceArgs], is_sync: bool) -> dict[str, Any]:
    stated = int_column([a.stream for a in args])  # [n]
    device = int_column([a.device for a in args])  # [n]
    awaited = int_column([a.wait_on_stream for a in args]) if is_sync else stated  # [n]
    return {
        "correlation": int_column([a.correlation for a in args]),
        "external_id": int_column([a.external_id if a.external_id is not None else a.external_id_2021 for a in args]),
        "device": np.where(device >= 0, device, lane_column([e.pid for e in events])).astype(np.int32),
        "stream": np.where(awaited >= 0, awaited, np.where(stated >= 0, stated, lane_column([e.tid for e in events]))),
        "wait_event": int_column([a.wait_event for a in args]),
        "bytes": float_column([a.bytes if a.bytes is not None else a.size for a in args]),
    }


def _stack(parts: list[dict[str, Any]], name: str, dtype: str) -> np.ndarray:
    """[num_events] column over all parts; unknown where a part does not have it."""
    unknown = np.nan if dtype == "float64" else -1
    pieces = [p[name] if name in p else np.full(len(p["events"]), unknown) for p in parts]
    return np.concatenate(pieces).astype(dtype, copy=False) if pieces else np.empty(0, dtype)


def _annotations(kind: np.ndarray, name: Any) -> np.ndarray:
    """Kinds [num_events] with step marks that old files list as operators turned into annotations."""
    marks = np.array([text.startswith(ANNOTATION_NAMES) for text in name.categories] + [False])
    is_op = kind == KIND_CODES[EventKind.CPU_OP]
    return np.where(is_op & marks[name.codes], KIND_CODES[EventKind.ANNOTATION], kind).astype(np.int8)


def _order(columns: dict[str, Any], kind: np.ndarray, dropped: dict[str, int]) -> np.ndarray:
    """Row numbers sorted by start, longer first, then by the id that ops get when they start; broken rows left out."""
    start, duration = columns["start_ns"], columns["duration_ns"]
    broken = (duration < 0) | (duration > MAX_YEARS_NS)
    if not broken.all():
        broken |= np.abs(start - int(np.median(start[~broken]))) > MAX_YEARS_NS
    if broken.any():
        dropped["events with a missing, negative or absurd time"] = int(broken.sum())
    is_host = kind <= KIND_CODES[EventKind.ANNOTATION]
    order = np.lexsort((np.where(is_host, columns["external_id"], -1), -duration, start))
    return order[~broken[order]]


def _base_time_ns(decoded: Decoded) -> int:
    base = decoded.head.baseTimeNanoseconds
    try:
        return int(base) if base is not None and abs(int(base)) < 2**62 else 0
    except (ValueError, OverflowError):
        return 0
