"""The events of a Kineto file -> one sorted table of one rank, before linking."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import attrgetter, is_
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from gnnperf.errors import InputError
from gnnperf.schema import EventKind
from gnnperf.trace.columns import (
    Codes,
    categorical,
    coded,
    float_column,
    int_column,
    json_column,
    lane_column,
    ns_column,
    thread_column,
)
from gnnperf.trace.kineto import FLOW, KINDS, NO_ARGS, SPACE, Args, CommArgs, Head, Reader, no_collection, repair
from gnnperf.trace.limits import MAX_NAME_CHARS, MAX_YEARS_NS

KIND_CODES = {kind: code for code, kind in enumerate(EventKind)}
KIND_OF_WORD = {word: KIND_CODES[kind] for word, kind in KINDS.items()}
LAST_OP_CODE = KIND_CODES[EventKind.ANNOTATION]  # kinds are in this order: ops and annotations, runtime, device side
LAST_HOST_CODE = KIND_CODES[EventKind.RUNTIME]
ANNOTATION_NAMES = ("ProfilerStep", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#")
MTIA_KINDS = {"event_wait": EventKind.SYNC, "event_record": EventKind.SYNC, "dma_request": EventKind.MEMCPY}
JSON_FIELDS = {"input_dims": "dims", "input_types": "types", "input_values": "values"}
SIDE_FIELDS = ("forward_thread", "event_index", "record_function")


@dataclass(frozen=True)
class Assembled:
    """The rows of one rank, sorted by start, longer first, outer op first.

    Attributes:
        columns: every column of schema.EVENT_COLUMNS that a single event states; arrays or categoricals [num_events].
        kind: [num_events] int8, code of EventKind in KIND_CODES.
        side: [num_events] int64 each of SIDE_FIELDS, -1 unknown: for linking only.
        metadata: row -> metadata of a collective, where the event has any.
        flows: forward-backward arrows, both ends, times in ns on the table's scale.
        base_ns: absolute time of start_ns = 0.
        head: the file's top level.
        dropped: how many events were left out, by reason.
    """

    columns: dict[str, Any]
    kind: np.ndarray
    side: dict[str, np.ndarray]
    metadata: dict[int, CommArgs]
    flows: list[tuple[str, object, int, int]]  # ph, id, thread, start_ns
    base_ns: int
    head: Head
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.kind)

    def is_kind(self, *kinds: EventKind) -> np.ndarray:
        """[num_events] bool: rows of one of these kinds."""
        wanted = np.zeros(len(KIND_CODES), dtype=bool)
        wanted[[KIND_CODES[k] for k in kinds]] = True
        return wanted[self.kind]


@dataclass
class _Parts:
    """What has been read of a file so far, in file order."""

    columns: list[dict[str, np.ndarray]] = field(default_factory=list)  # of each stretch
    names: Codes = field(default_factory=Codes)
    texts: dict[str, Codes] = field(default_factory=lambda: {name: Codes() for name in JSON_FIELDS})
    metadata: dict[int, CommArgs] = field(default_factory=dict)
    flows: list[Any] = field(default_factory=list)
    size: int = 0


def assemble(data: bytes, where: str) -> Assembled:
    """One table of all events of a Kineto file's JSON text; broken events are dropped and counted.

    Raises:
        InputError: not JSON, cut off, not a trace, or no event that can be used.
    """
    with no_collection():
        try:
            return _assembled(Reader(data, where))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _assembled_repaired(data, where, error)


def _assembled_repaired(data: bytes, where: str, error: Exception) -> Assembled:
    """What profilers are known to break is repaired, once."""
    if data[:64].lstrip(SPACE)[:1] not in (b"{", b"["):
        raise InputError("is not a trace file", where=where, allowed="JSON with traceEvents, packed or not") from None
    repaired = repair(data)
    try:
        if repaired != data:
            return _assembled(Reader(repaired, where))
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise InputError(f"is not readable JSON ({error}); it may be cut off", where=where,
                     remedy="copy or record the file again") from None  # fmt: skip


def _assembled(reader: Reader) -> Assembled:
    parts = _Parts()
    for events in reader.stretches():
        _add(parts, events)
        del events  # before the next stretch is decoded
    if not parts.size:
        raise InputError("holds no event that can be used", where=reader.where, remedy="record at least one whole step")
    return _table(parts, reader)


def _add(parts: _Parts, events: list[Any]) -> None:
    """The columns of one stretch."""
    parts.flows += [(e.ph, e.id, e.tid, e.ts) for e in events if e.cat == FLOW]
    rows = [e for e in events if e.cat in KINDS and e.ph == "X"]
    if not rows:
        return
    args = [NO_ARGS if e.args is None else e.args for e in rows]
    kind = _kinds(rows)
    columns = {
        "kind": kind,
        "name": parts.names.of([e.name for e in rows]),
        "start_ns": ns_column([e.ts for e in rows]),
        "duration_ns": _durations(rows),
        "external_id": _external_ids(args),
    }
    columns |= _of(kind <= LAST_OP_CODE, args, lambda a: _op_columns(a, parts.texts))
    columns |= _of(kind > LAST_OP_CODE, args, lambda a: {"correlation": int_column([x.correlation for x in a])})
    columns |= _of(kind <= LAST_HOST_CODE, rows, lambda e: {"thread": thread_column([x.tid for x in e])})
    if (kind > LAST_HOST_CODE).any():
        columns |= _device_columns(rows, args, kind)
    if type(args[0]) is CommArgs or type(args[-1]) is CommArgs or any(type(a) is CommArgs for a in args):
        stated = {i: a for i, a in enumerate(args) if getattr(a, "collective", None) is not None}
        parts.metadata |= {parts.size + i: a for i, a in stated.items()}
    parts.columns.append(columns)
    parts.size += len(rows)


def _kinds(rows: list[Any]) -> np.ndarray:
    """[n] int8 kind codes; MTIA's device kinds are in the names."""
    words = [e.cat for e in rows]
    kind = np.array([KIND_OF_WORD[w] for w in words], dtype=np.int8)
    if "mtia_ccp_events" in words:
        kind[:] = [KIND_CODES[MTIA_KINDS[e.name]] if e.cat == "mtia_ccp_events" and e.name in MTIA_KINDS else k
                   for e, k in zip(rows, kind.tolist(), strict=True)]  # fmt: skip
    return kind


def _durations(rows: list[Any]) -> np.ndarray:
    """[n] int64 ns; negative where the start or the duration is missing."""
    duration = ns_column([e.dur for e in rows])
    lost = [i for i, e in enumerate(rows) if e.ts is None]
    duration[lost] = -1
    return duration


def _external_ids(args: list[Args]) -> np.ndarray:
    """[n] "External id", which 2021 files write in lower case on runtime calls and device work."""
    ids = int_column([a.external_id for a in args])
    if (ids >= 0).all():
        return ids
    return np.where(ids >= 0, ids, int_column([a.external_id_2021 for a in args]))


def _of(rows: np.ndarray, values: list[Any], build: Any) -> dict[str, np.ndarray]:
    """Columns [n] that only some rows [n] bool have, unknown elsewhere."""
    columns = {}
    for name, column in build(list(compress(values, rows.tolist()))).items():
        columns[name] = np.full(len(rows), _unknown(column.dtype), dtype=column.dtype)
        columns[name][rows] = column
    return columns


def _unknown(dtype: np.dtype[Any]) -> float:
    return np.nan if dtype.kind == "f" else -1


def _op_columns(args: list[Args], texts: dict[str, Codes]) -> dict[str, np.ndarray]:
    columns = {name: int_column([getattr(a, name) for a in args]) for name in ("sequence", *SIDE_FIELDS)}
    for column, name in JSON_FIELDS.items():
        raw = list(map(attrgetter(name), args))
        if all(map(is_, raw, repeat(getattr(NO_ARGS, name)))):
            columns[column] = np.full(len(raw), -1, dtype=np.int32)
        else:
            columns[column] = texts[column].of(list(map(bytes, raw)))
    return columns


def _device_columns(rows: list[Any], args: list[Args], kind: np.ndarray) -> dict[str, np.ndarray]:
    """Devices, streams, awaited events and bytes of the device side."""
    side = kind > LAST_HOST_CODE  # [n]
    lanes = _of(side, rows, lambda e: {"pid": lane_column([x.pid for x in e]), "tid": lane_column([x.tid for x in e])})
    stated = _of(side, args, _stated_device_columns)
    awaited = (kind == KIND_CODES[EventKind.SYNC]) & (stated["awaited"] >= 0)  # [n]
    stream = np.where(stated["stream"] >= 0, stated["stream"], lanes["tid"])
    device = np.where(stated["device"] >= 0, stated["device"], lanes["pid"])
    return {
        "device": np.where(np.abs(device) < 2**31, device, -1).astype(np.int32),
        "stream": np.where(awaited, stated["awaited"], stream),
        "wait_event": stated["wait_event"],
        "bytes": stated["bytes"],
    }


def _stated_device_columns(args: list[Args]) -> dict[str, np.ndarray]:
    return {
        "device": int_column([a.device for a in args]),
        "stream": int_column([a.stream for a in args]),
        "awaited": int_column([a.wait_on_stream for a in args]),
        "wait_event": int_column([a.wait_event for a in args]),
        "bytes": float_column([a.size if a.bytes is None else a.bytes for a in args]),
    }


DTYPES = {"device": np.int32, "bytes": np.float64, "kind": np.int8, "name": np.int32, **dict.fromkeys(JSON_FIELDS, np.int32)}
COLUMNS = ("kind", "name", "start_ns", "duration_ns", "thread", "device", "stream", "correlation", "external_id",
           "sequence", "wait_event", "bytes", *JSON_FIELDS, *SIDE_FIELDS)  # fmt: skip


def _table(parts: _Parts, reader: Reader) -> Assembled:
    """All stretches as one table, sorted."""
    stacked = {name: _stacked(parts.columns, name) for name in COLUMNS}
    texts, codes = _names(parts.names, stacked["name"])
    kind = _with_marks(stacked.pop("kind"), texts, codes)
    order = _order(stacked, kind, reader)
    columns: dict[str, Any] = {name: values[order] for name, values in stacked.items()}
    first = int(columns["start_ns"][0])
    columns["start_ns"] -= first
    columns["event_id"] = np.arange(len(order), dtype=np.int64)
    columns["kind"] = categorical(kind[order], [str(k) for k in EventKind])
    columns["name"] = categorical(codes[order], texts)
    for name in JSON_FIELDS:
        columns[name] = json_column(columns[name], parts.texts[name].uniques())
    side = {name: columns.pop(name) for name in SIDE_FIELDS}
    base = _base_time_ns(reader.head) + first
    flows = _flows(parts.flows, first)
    return Assembled(columns, kind[order], side, _by_row(parts.metadata, order), flows, base, reader.head, reader.dropped)


def _stacked(parts: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    dtype = np.dtype(DTYPES.get(name, np.int64))
    return np.concatenate(
        [p[name] if name in p else np.full(len(p["kind"]), _unknown(dtype), dtype=dtype) for p in parts]
    )


def _names(names: Codes, codes: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Distinct names and codes [n]; over-long names are cut, which a profiler never writes."""
    texts = names.uniques()
    if max(map(len, texts)) <= MAX_NAME_CHARS:
        return texts, codes
    merged, cut = coded([t[:MAX_NAME_CHARS] for t in texts])
    return cut, merged[codes]


def _with_marks(kind: np.ndarray, texts: list[str], codes: np.ndarray) -> np.ndarray:
    """[n] kinds; step marks that old files list as operators are annotations."""
    marks = np.array([text.startswith(ANNOTATION_NAMES) for text in texts])
    return np.where((kind == KIND_CODES[EventKind.CPU_OP]) & marks[codes], KIND_CODES[EventKind.ANNOTATION], kind)


def _order(columns: dict[str, np.ndarray], kind: np.ndarray, reader: Reader) -> np.ndarray:
    """Row numbers sorted by start, longer first, then by the id that ops get when they start; broken rows left out."""
    start, duration = columns["start_ns"], columns["duration_ns"]
    broken = (duration < 0) | (duration > MAX_YEARS_NS)
    if broken.all():
        raise InputError("holds no event with a usable time", where=reader.where, remedy="record the run again")
    broken |= np.abs(start - int(np.median(start[~broken]))) > MAX_YEARS_NS
    order = np.lexsort((np.where(kind <= LAST_OP_CODE, columns["external_id"], -1), -duration, start))
    if not broken.any():
        return order
    reader.dropped["events with a missing, negative or absurd time"] = int(broken.sum())
    return order[~broken[order]]


def _by_row(metadata: dict[int, CommArgs], order: np.ndarray) -> dict[int, CommArgs]:
    """Metadata by row instead of by place in the file."""
    if not metadata:
        return {}
    row = np.full(int(order.max()) + 1, -1, dtype=np.int64)
    row[order] = np.arange(len(order))
    return {int(row[i]): a for i, a in metadata.items() if i < len(row) and row[i] >= 0}


def _flows(flows: list[Any], first: int) -> list[tuple[str, object, int, int]]:
    timed = [f for f in flows if f[3] is not None]
    threads, starts = thread_column([f[2] for f in timed]), ns_column([f[3] for f in timed]) - first
    return [(f[0], f[1], t, s) for f, t, s in zip(timed, threads.tolist(), starts.tolist(), strict=True)]


def _base_time_ns(head: Head) -> int:
    base = head.baseTimeNanoseconds
    try:
        return int(base) if base is not None and abs(int(base)) < 2**62 else 0
    except (ValueError, OverflowError):
        return 0
