"""The events of a Kineto file -> one sorted table of one rank, before linking."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import compress
from mmap import mmap
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec import Raw

from gnnperf.core import EventKind, InputError
from gnnperf.trace import kineto
from gnnperf.trace.columns import (
    MISSING_NS,
    Codes,
    categorical,
    coded,
    float_column,
    int_column,
    json_column,
    lane_column,
    launch_columns,
    ns_column,
    thread_column,
)
from gnnperf.trace.limits import MAX_ID, MAX_NAME_CHARS, MAX_WINDOW_NS

# Events -> numpy columns, stretch by stretch, in file order.

KIND_CODES = {kind: code for code, kind in enumerate(EventKind)}
KIND_OF_WORD = {word: KIND_CODES[kind] for word, kind in kineto.KINDS.items()}
LAST_OP_CODE = KIND_CODES[EventKind.ANNOTATION]  # kinds are in this order: ops and annotations, runtime, device side
LAST_HOST_CODE = KIND_CODES[EventKind.RUNTIME]
MTIA = "mtia_ccp_events"
MTIA_KINDS = {"event_wait": EventKind.SYNC, "event_record": EventKind.SYNC, "dma_request": EventKind.MEMCPY}
JSON_FIELDS = dict(zip(("input_dims", "input_types", "input_values"), kineto.INPUTS, strict=True))
SIDE_FIELDS = ("forward_thread", "event_index", "record_function")
_LAUNCH = attrgetter(*kineto.LAUNCH)  # in the order of schema.LAUNCH_COLUMNS

Coded = tuple[np.ndarray, list[Any]]  # codes [n], -1 none, and the distinct values in order of first appearance


@dataclass
class Stretch:
    """The events of a stretch of text that are read, in its order; numbers and codes [num_events], -1 unknown."""

    kind: np.ndarray
    numbers: dict[str, np.ndarray]  # start_ns, duration_ns, pid, tid, bytes (NaN unknown), those of kineto.INT_ARGS
    name: Coded
    inputs: dict[str, Coded]  # by name in JSON_FIELDS
    launch: Coded
    metadata: list[tuple[int, kineto.CommArgs]]  # row and metadata of a collective
    flows: list[Any]  # ph, id, tid and ts of forward-backward arrows


def of_decoded(events: list[Any]) -> Stretch:
    """The columns of decoded events."""
    flows = [(e.ph, e.id, e.tid, e.ts) for e in events if e.cat == kineto.FLOW]
    rows = [e for e in events if e.cat in kineto.KINDS and e.ph == "X"]
    args = [kineto.NO_ARGS if e.args is None else e.args for e in rows]
    name = coded([e.name for e in rows])
    kind = with_mtia(np.array([KIND_OF_WORD[e.cat] for e in rows], np.int8), [e.cat for e in rows], name)
    numbers = {field: int_column(list(map(attrgetter(field), args))) for field in kineto.INT_ARGS}
    numbers |= {"start_ns": ns_column([e.ts for e in rows]), "duration_ns": ns_column([e.dur for e in rows]),
                "pid": lane_column([e.pid for e in rows]), "tid": lane_column([e.tid for e in rows]),
                "bytes": float_column([a.size if a.bytes is None else a.bytes for a in args])}  # fmt: skip
    is_op, is_kernel = (kind <= LAST_OP_CODE).tolist(), (kind == KIND_CODES[EventKind.KERNEL]).tolist()
    inputs = {field: _coded_of(is_op, list(map(attrgetter(field), args)), bytes) for field in kineto.INPUTS}
    launch = _coded_of(is_kernel, args, lambda a: tuple(map(bytes, _LAUNCH(a))))
    stated = [(i, a) for i, a in enumerate(args) if isinstance(a, kineto.CommArgs) and a.collective is not None]
    return Stretch(kind, numbers, name, inputs, launch, stated, flows)


def _coded_of(rows: list[bool], values: list[Any], key: Callable[[Any], Hashable]) -> Coded:
    """Codes [n] of the keys of some rows [n] bool, -1 elsewhere."""
    codes, distinct = coded(list(map(key, compress(values, rows))))
    result = np.full(len(rows), -1, dtype=np.int32)
    result[np.array(rows, dtype=bool)] = codes
    return result, distinct


def with_mtia(kind: np.ndarray, words: Sequence[str | None], name: Coded) -> np.ndarray:
    """[n] int8 kind codes; MTIA's device kinds are in the names."""
    if MTIA not in words:
        return kind
    known = np.array([KIND_CODES[MTIA_KINDS[n]] if n in MTIA_KINDS else -1 for n in name[1]])[name[0]]
    return np.where((np.array(words) == MTIA) & (known >= 0), known, kind).astype(np.int8)


@dataclass
class Parts:
    """What has been read of a file so far."""

    # of each stretch: arrays [num_events of the stretch]; a column that a stretch lacks is unknown there
    columns: list[dict[str, np.ndarray]] = field(default_factory=list)
    names: Codes = field(default_factory=Codes)  # codes of event names, over all stretches
    # codes of undecoded shapes, dtypes and values, over all stretches
    texts: dict[str, Codes] = field(default_factory=lambda: {name: Codes() for name in JSON_FIELDS})
    launches: Codes = field(default_factory=Codes)  # codes of undecoded launches of kernels, over all stretches
    metadata: dict[int, kineto.CommArgs] = field(default_factory=dict)  # place in the file -> metadata of a collective
    flows: list[Any] = field(default_factory=list)  # ph, id, tid and ts of forward-backward arrows
    size: int = 0  # number of events


def add(parts: Parts, stretch: Stretch) -> None:
    """Add the columns of one stretch of events."""
    parts.flows += stretch.flows
    kind, n = stretch.kind, stretch.numbers
    if not len(kind):
        return
    is_op, on_host, on_device = kind <= LAST_OP_CODE, kind <= LAST_HOST_CODE, kind > LAST_HOST_CODE
    awaited = (kind == KIND_CODES[EventKind.SYNC]) & (n["wait_on_stream"] >= 0)
    stream = np.where(n["stream"] >= 0, n["stream"], n["tid"])
    device = np.where(n["device"] >= 0, n["device"], n["pid"])
    ids = n["external_id"]  # 2021 files write it in lower case on runtime calls and device work
    columns = {
        "kind": kind, "name": _over_all(stretch.name, parts.names), "start_ns": n["start_ns"],
        "duration_ns": n["duration_ns"], "external_id": np.where(ids >= 0, ids, n["external_id_2021"]),
    }  # fmt: skip
    of_some = {name: (is_op, n[name]) for name in ("sequence", *SIDE_FIELDS)}
    of_some |= {name: (is_op, _over_all(stretch.inputs[one], parts.texts[name])) for name, one in JSON_FIELDS.items()}
    of_some |= {
        "correlation": (~is_op, n["correlation"]),
        "thread": (on_host, np.where(n["tid"] < 0, n["tid"] & 0xFFFFFFFF, n["tid"])),
        "device": (on_device & (device < 2**31), device),
        "stream": (on_device, np.where(awaited, n["wait_on_stream"], stream)),
        "waiting_stream": (awaited, n["stream"]),
        "wait_event": (on_device, n["wait_event"]),
        "bytes": (on_device, n["bytes"]),
        "launch": (kind == KIND_CODES[EventKind.KERNEL], _over_all(stretch.launch, parts.launches)),
    }
    for name, (rows, values) in of_some.items():
        dtype = np.dtype(DTYPES.get(name, np.int64))
        column = np.where(rows, values, unknown(dtype)).astype(dtype, copy=False)
        if dtype.kind == "f" or (column != -1).any():
            columns[name] = column
    parts.metadata |= {parts.size + row: args for row, args in stretch.metadata}
    parts.columns.append(columns)
    parts.size += len(kind)


def _over_all(column: Coded, codes: Codes) -> np.ndarray:
    """[n] int32 codes over all stretches."""
    return np.append(codes.of(column[1]), np.int32(-1))[column[0]]


def unknown(dtype: np.dtype[Any]) -> float:
    """What stands for unknown in a column of this dtype."""
    return np.nan if dtype.kind == "f" else -1


ANNOTATION_NAMES = ("ProfilerStep", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#")


@dataclass(frozen=True)
class Assembled:
    """The rows of one rank, sorted by start, longer first, outer op first."""

    # every column of schema.EVENT_COLUMNS that a single event states; arrays or categoricals [num_events]
    columns: dict[str, Any]
    kind: np.ndarray  # [num_events] int8, code of EventKind in KIND_CODES
    names: list[str]  # the text of each code of the column `name`
    side: dict[str, np.ndarray]  # [num_events] int64 each of SIDE_FIELDS, -1 unknown: for linking only
    metadata: dict[int, kineto.CommArgs]  # row -> metadata of a collective, where the event has any
    # ends of forward-backward arrows: ph, id, thread, start in ns on the table's scale
    flows: list[tuple[str, object, int, int]]
    base_ns: int  # absolute time of start_ns = 0
    head: kineto.Head  # the file's top level
    dropped: dict[str, int]  # how many events were left out, by reason

    def __len__(self) -> int:
        return len(self.kind)

    def is_kind(self, *kinds: EventKind) -> np.ndarray:
        """[num_events] bool: rows of one of these kinds."""
        wanted = np.zeros(len(KIND_CODES), dtype=bool)
        wanted[[KIND_CODES[k] for k in kinds]] = True
        return wanted[self.kind]


def assemble(data: bytes | mmap, where: str) -> Assembled:
    """One table of all events of a Kineto file's JSON text; broken events are counted, what is no trace is refused."""
    if data[:64].lstrip(kineto.SPACE)[:1] not in (b"{", b"["):
        raise InputError("is not a trace file", where=where, allowed="JSON with traceEvents, packed or not")
    problem = ""
    with kineto.no_collection():
        # Then what cannot be cut into stretches, then what profilers are known to break, repaired.
        for text, in_stretches in (
            (lambda: data, True), (lambda: data, False), (lambda: kineto.repair(bytes(data)), False)
        ):  # fmt: skip
            try:
                reader = kineto.Reader(text(), where)
                return _assembled(reader, _stretches(reader, reader.texts() if in_stretches else reader.one_piece()))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                problem = problem or str(error)
    raise InputError(f"is not readable JSON ({problem}); it may be cut off", where=where,
                     remedy="copy or record the file again")  # fmt: skip


SCANNED_BYTES = 2**27  # of a text that takes longer to decode than the scanner to load
AHEAD = 4  # stretches


def _stretches(reader: kineto.Reader, texts: Iterator[bytes | Raw]) -> Iterator[Stretch]:
    """The columns of each list of events, in order; of a large file by several threads."""
    if len(reader.data) < SCANNED_BYTES:
        yield from (of_decoded(reader.events(text)) for text in texts)
        return
    from gnnperf.trace.scanner import scanned  # loads numba

    def first() -> Stretch:
        text, result = ahead.popleft()
        return result.result() or of_decoded(reader.events(text))

    ahead: deque[tuple[bytes | Raw, Future[Stretch | None]]] = deque()
    with ThreadPoolExecutor(min(AHEAD, os.cpu_count() or 1)) as pool:
        for text in texts:
            ahead.append((text, pool.submit(scanned, text)))
            if len(ahead) > AHEAD:
                yield first()
        while ahead:
            yield first()


class EventReader(Protocol):
    """What reads a file of any format."""

    where: str
    head: kineto.Head
    dropped: dict[str, int]


def assemble_events(reader: EventReader, stretches: Iterator[list[Any]]) -> Assembled:
    """One table of all events that a reader makes, stretch by stretch; refuses a file without any."""
    return _assembled(reader, map(of_decoded, stretches))


def _assembled(reader: EventReader, stretches: Iterator[Stretch]) -> Assembled:
    parts = Parts()
    for stretch in stretches:
        add(parts, stretch)
    if not parts.size:
        raise InputError("holds no event that can be used", where=reader.where, remedy="record at least one whole step")
    return _table(parts, reader)


DTYPES = {
    "device": np.int32,
    "bytes": np.float64,
    "kind": np.int8,
    "name": np.int32,
    "launch": np.int32,
    **dict.fromkeys(JSON_FIELDS, np.int32),
}
COLUMNS = ("kind", "name", "start_ns", "duration_ns", "thread", "device", "stream", "correlation", "external_id",
           "sequence", "wait_event", "waiting_stream", "bytes", "launch", *JSON_FIELDS, *SIDE_FIELDS)  # fmt: skip


def _table(parts: Parts, reader: EventReader) -> Assembled:
    """All stretches as one table, sorted."""
    stacked, sizes = {}, [len(p["kind"]) for p in parts.columns]
    for name in COLUMNS:
        dtype = np.dtype(DTYPES.get(name, np.int64))
        stacked[name] = np.concatenate([
            p.pop(name) if name in p else np.full(size, unknown(dtype), dtype=dtype)
            for size, p in zip(sizes, parts.columns, strict=True)
        ])  # fmt: skip
    texts, codes = parts.names.uniques(), stacked["name"]
    if max(map(len, texts)) > MAX_NAME_CHARS:  # which a profiler never writes
        merged, texts = coded([t[:MAX_NAME_CHARS] for t in texts])
        codes = merged[codes]
    kind = stacked.pop("kind")
    marks = np.array([text.startswith(ANNOTATION_NAMES) for text in texts])[codes]  # old files list them as operators
    kind = np.where((kind == KIND_CODES[EventKind.CPU_OP]) & marks, KIND_CODES[EventKind.ANNOTATION], kind)
    order = _order(stacked, kind, reader)
    columns: dict[str, Any] = {name: stacked.pop(name)[order] for name in list(stacked)}
    first = int(columns["start_ns"][0])
    columns["start_ns"] -= first
    columns["event_id"] = np.arange(len(order), dtype=np.int64)
    columns["kind"] = categorical(kind[order], [str(k) for k in EventKind])
    columns["name"] = categorical(codes[order], texts)
    for name in JSON_FIELDS:
        columns[name] = json_column(columns[name], parts.texts[name].uniques(), name, reader.dropped)
    columns |= launch_columns(columns.pop("launch"), parts.launches.uniques())
    side = {name: columns.pop(name) for name in SIDE_FIELDS}
    stated = kineto.decoded(reader.head.baseTimeNanoseconds, int | float)  # the first event starts `first` ns after it
    usable = stated is not None and abs(stated) < MAX_ID and abs(int(stated) + first) < MAX_ID
    base = int(stated) + first if usable and stated is not None else first
    row = np.full(parts.size, -1, dtype=np.int64)  # of each place in the file
    row[order] = np.arange(len(order))
    metadata = {int(row[place]): args for place, args in parts.metadata.items() if row[place] >= 0}
    timed = [f for f in parts.flows if f[3] is not None]
    threads, starts = thread_column([f[2] for f in timed]), ns_column([f[3] for f in timed]) - first
    flows = [(f[0], f[1], t, s) for f, t, s in zip(timed, threads.tolist(), starts.tolist(), strict=True)]
    return Assembled(columns, kind[order], texts, side, metadata, flows, base, reader.head, reader.dropped)


def _order(columns: dict[str, np.ndarray], kind: np.ndarray, reader: EventReader) -> np.ndarray:
    """Row numbers sorted by start, longer first, then by the id that ops get when they start; broken rows left out."""
    start, duration = columns["start_ns"], columns["duration_ns"]
    broken = (start == MISSING_NS) | (duration < 0) | (duration > MAX_WINDOW_NS)
    if broken.all():
        raise InputError("holds no event with a usable time", where=reader.where, remedy="record the run again")
    broken |= np.abs(start - np.median(start[~broken])) > MAX_WINDOW_NS
    order = np.lexsort((np.where(kind <= LAST_OP_CODE, columns["external_id"], -1), -duration, start))
    if not broken.any():
        return order
    reader.dropped["events with a missing, negative or absurd time"] = int(broken.sum())
    return order[~broken[order]]
