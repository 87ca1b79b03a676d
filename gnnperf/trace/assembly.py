"""The events of a Kineto file -> one sorted table of one rank, before linking."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Protocol, Union

import msgspec
import numpy as np

from gnnperf.core import EventKind, InputError, copyable_cores, in_copy, schema, usable_cores
from gnnperf.trace import kineto
from gnnperf.trace.columns import (
    MISSING_NS,
    Codes,
    coded,
    float_column,
    int_column,
    json_column,
    lane_column,
    launch_column,
    ns_column,
    sorted_rows,
    threads,
)
from gnnperf.trace.limits import MAX_ID, MAX_NAME_CHARS, MAX_WINDOW_NS
from gnnperf.trace.trace_sources import Text

if TYPE_CHECKING:
    from gnnperf.trace.scanner import Scanned

# Decoded events -> numpy columns, stretch by stretch, in file order.

KIND_CODES = {kind: code for code, kind in enumerate(EventKind)}
KIND_OF_WORD = {word: KIND_CODES[kind] for word, kind in kineto.KINDS.items()}
LAST_OP_CODE = KIND_CODES[EventKind.ANNOTATION]  # kinds are in this order: ops and annotations, runtime, device side
LAST_HOST_CODE = KIND_CODES[EventKind.RUNTIME]
MTIA = "mtia_ccp_events"
MTIA_KINDS = {"event_wait": EventKind.SYNC, "event_record": EventKind.SYNC, "dma_request": EventKind.MEMCPY}
JSON_FIELDS = {"input_dims": "dims", "input_types": "types", "input_values": "values"}
SIDE_FIELDS = ("forward_thread", "event_index", "record_function")
LAUNCH_FIELDS = {"grid": "grid", "block": "block", "registers": "registers", "shared_bytes": "shared_bytes",
                 "occupancy_percent": "occupancy"}  # fmt: skip
TEXT_FIELDS = JSON_FIELDS | LAUNCH_FIELDS


@dataclass
class Parts:
    """What has been read of a file so far."""

    # of each stretch: arrays [num_events of the stretch]; a column that a stretch lacks is unknown there
    columns: list[dict[str, np.ndarray]] = field(default_factory=list)
    names: Codes = field(default_factory=Codes)  # codes of event names, over all stretches
    # codes of undecoded shapes, dtypes, values and launches of kernels, over all stretches
    texts: dict[str, Codes] = field(default_factory=lambda: {name: Codes() for name in TEXT_FIELDS})
    metadata: dict[int, kineto.CommArgs] = field(default_factory=dict)  # place in the file -> metadata of a collective
    flows: list[Any] = field(default_factory=list)  # see `Structs`
    size: int = 0  # number of events
    head: kineto.Head = field(default_factory=kineto.Head)  # the top level of the file
    dropped: Counter[str] = field(default_factory=Counter)  # how many events were left out, by reason

    def codes(self) -> dict[str, Codes]:
        """What numbers the values of each column that has codes."""
        return {"name": self.names, **self.texts}

    def extend(self, later: "Parts") -> None:
        """Add what was read of the text that follows."""
        for name, codes in later.codes().items():
            number = np.append(self.codes()[name].of(codes.uniques()), np.int32(-1))
            for columns in later.columns:
                if name in columns:
                    columns[name] = number[columns[name]]
        self.columns += later.columns
        self.metadata |= {self.size + place: args for place, args in later.metadata.items()}
        self.flows += later.flows
        self.size += later.size
        self.head = kineto.merged(self.head, later.head)
        self.dropped += later.dropped


class Structs:
    """The events of a stretch that are read, decoded; each column is [num_events]."""

    flows: list[Any]  # forward-backward arrows: ph, id, tid and ns

    def __init__(self, rows: list[Any], args: list[kineto.Args]) -> None:
        self.rows, self.args, self.flows = rows, args, []

    @staticmethod
    def of(events: list[Any]) -> "Structs":
        """What is read of decoded events."""
        rows = [e for e in events if e.cat in kineto.KINDS and e.ph == "X"]
        read = Structs(rows, [kineto.NO_ARGS if e.args is None else e.args for e in rows])
        arrows = [e for e in events if e.cat == kineto.FLOW]
        times = ns_column([e.ts for e in arrows]).tolist()
        read.flows = [(e.ph, e.id, e.tid, time_ns) for e, time_ns in zip(arrows, times, strict=True)]
        return read

    @property
    def kind(self) -> np.ndarray:
        """int8 kind codes; MTIA's device kinds are in the names."""
        words = list(map(attrgetter("cat"), self.rows))
        kind = np.fromiter(map(KIND_OF_WORD.__getitem__, words), np.int8, len(words))
        if MTIA in words:
            kind[:] = [KIND_CODES[MTIA_KINDS[e.name]] if e.cat == MTIA and e.name in MTIA_KINDS else k
                       for e, k in zip(self.rows, kind.tolist(), strict=True)]  # fmt: skip
        return kind

    def only(self, rows: np.ndarray) -> "Structs":
        """Those of some rows [num_events] bool."""
        listed = rows.tolist()
        return Structs(list(compress(self.rows, listed)), list(compress(self.args, listed)))

    def names(self, codes: Codes) -> np.ndarray:
        """int32 codes."""
        return codes.of([e.name for e in self.rows])

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 ns of begins and durations."""
        return ns_column([e.ts for e in self.rows]), ns_column([e.dur for e in self.rows])

    def identifiers(self, field: str) -> np.ndarray:
        """int64, -1 unknown."""
        return int_column(list(map(attrgetter(field), self.args)))

    def lanes(self, field: str) -> np.ndarray:
        """int64 of `pid` or `tid`."""
        return lane_column(list(map(attrgetter(field), self.rows)))

    def sizes(self) -> np.ndarray:
        """float64 bytes, NaN unknown."""
        return float_column([a.size if a.bytes is None else a.bytes for a in self.args])

    def texts(self, field: str, codes: Codes) -> np.ndarray:
        """int32 codes of undecoded texts, -1 none."""
        raw = list(map(attrgetter(field), self.args))
        if all(map(is_, raw, repeat(getattr(kineto.NO_ARGS, field)))):
            return np.full(len(raw), -1, dtype=np.int32)
        return codes.of(list(map(bytes, raw)))

    def metadata(self) -> dict[int, kineto.CommArgs]:
        """Row -> metadata of a collective, without views of the text."""
        first = next((a for a in self.args if a is not kineto.NO_ARGS), None)
        if not isinstance(first, kineto.CommArgs):  # one type in all of a stretch
            return {}
        return {i: msgspec.structs.replace(a, **kineto.NO_VIEWS) for i, a in enumerate(self.args)
                if isinstance(a, kineto.CommArgs) and a.collective is not None}  # fmt: skip


Stretch = Union["Structs", "Scanned"]


def add(parts: "Parts", rows: Stretch) -> None:
    """Add the columns of one stretch."""
    parts.flows += rows.flows
    kind = rows.kind
    if not len(kind):
        return
    ids = rows.identifiers("external_id")
    if (ids < 0).any():  # 2021 files write it in lower case on runtime calls and device work
        ids = np.where(ids >= 0, ids, rows.identifiers("external_id_2021"))
    start, duration = rows.times()
    columns = {"kind": kind, "name": rows.names(parts.names), "start_ns": start, "duration_ns": duration,
               "external_id": ids}  # fmt: skip
    columns |= _of(kind <= LAST_OP_CODE, rows, lambda ops: {
        **{name: ops.identifiers(name) for name in ("sequence", *SIDE_FIELDS)},
        **{column: ops.texts(name, parts.texts[column]) for column, name in JSON_FIELDS.items()},
    })  # fmt: skip
    columns |= _of(kind > LAST_OP_CODE, rows, lambda others: {"correlation": others.identifiers("correlation")})
    columns |= _of(kind <= LAST_HOST_CODE, rows, lambda host: {"thread": threads(host.lanes("tid"))})
    if (kind > LAST_HOST_CODE).any():
        columns |= _of(kind > LAST_HOST_CODE, rows, _device_columns)
        is_kernel = kind == KIND_CODES[EventKind.KERNEL]
        columns |= _of(is_kernel, rows, lambda kernels: {
            column: kernels.texts(name, parts.texts[column]) for column, name in LAUNCH_FIELDS.items()})  # fmt: skip
    parts.metadata |= {parts.size + i: args for i, args in rows.metadata().items()}
    parts.columns.append(columns)
    parts.size += len(kind)


def _of(chosen: np.ndarray, rows: Stretch, build: Callable[[Stretch], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Columns [n] that only the chosen rows [n] bool have, unknown elsewhere."""
    columns = {}
    for name, column in build(rows.only(chosen)).items():
        columns[name] = np.full(len(chosen), unknown(column.dtype), dtype=column.dtype)
        columns[name][chosen] = column
    return columns


def unknown(dtype: np.dtype[Any]) -> float:
    """What stands for unknown in a column of this dtype."""
    return np.nan if dtype.kind == "f" else -1


def _device_columns(side: Stretch) -> dict[str, np.ndarray]:
    """Devices, streams, awaited events and bytes of the device side."""
    stream, device, waited_on = map(side.identifiers, ("stream", "device", "wait_on_stream"))
    awaited = (side.kind == KIND_CODES[EventKind.SYNC]) & (waited_on >= 0)  # [n]
    device = np.where(device >= 0, device, side.lanes("pid"))
    return {
        "device": np.where((device >= 0) & (device < 2**31), device, -1).astype(np.int32),
        "stream": np.where(awaited, waited_on, np.where(stream >= 0, stream, side.lanes("tid"))),
        "waiting_stream": np.where(awaited, stream, -1),
        "wait_event": side.identifiers("wait_event"),
        "bytes": side.sizes(),
    }


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
    dropped: Counter[str]  # how many events were left out, by reason

    def __len__(self) -> int:
        return len(self.kind)

    def is_kind(self, *kinds: EventKind) -> np.ndarray:
        """[num_events] bool: rows of one of these kinds."""
        wanted = np.zeros(len(KIND_CODES), dtype=bool)
        wanted[[KIND_CODES[k] for k in kinds]] = True
        return wanted[self.kind]


STRETCHES_PER_COPY = 8  # at least; they take a tenth of a second
SCANNED_BYTES = 200 << 20  # two processes decode them in the time that numba and what it compiled take to load
SCANNED_AT_ONCE = 8  # stretches
_read_bytes = 0


def expect(size: int) -> None:
    """So many bytes of text will be read: if they are many, they are scanned from the first file on."""
    global _read_bytes
    _read_bytes += size if size >= SCANNED_BYTES else 0
    if (scans := _scans()) is not None:
        scans(b" " * 64)(0, 1)  # loads what was compiled, before this process is copied


def assemble(data: Text, where: str) -> Assembled:
    """One table of all events of a Kineto file's JSON text; broken events are counted, what is no trace is refused."""
    if data[:64].lstrip(kineto.SPACE)[:1] not in (b"{", b"["):
        raise InputError("is not a trace file", where=where, allowed="JSON with traceEvents, packed or not")
    with kineto.no_collection():
        parts = _decoded(data, where)
        del data  # makes room for the table
        return _table(parts, where)


def _decoded(data: Text, where: str) -> "Parts":
    """What the text has; if need be what cannot be cut into stretches, and what profilers are known to break."""
    problem = ""
    for text, is_cut in ((lambda: data, True), (lambda: data, False), (lambda: kineto.repair(data), False)):
        try:
            reader = kineto.Reader(text(), where)
            return _of_spans(reader.data, where, reader.spans() if is_cut else [(0, len(reader.data))])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = problem or str(error)
    raise InputError(f"is not readable JSON ({problem}); it may be cut off", where=where,
                     remedy="copy or record the file again")  # fmt: skip


def _scans() -> Callable[[Text], Callable[[int, int], Stretch | None]] | None:
    """A text -> the function that scans its stretches; None while too little was read for numba, which loads slowly."""
    if sys.byteorder != "little" or (_read_bytes < SCANNED_BYTES and "numba" not in sys.modules):
        return None
    from gnnperf.trace.scanner import Scanner

    return lambda data: Scanner(data).scanned


def _of_spans(data: Text, where: str, spans: Sequence[kineto.Span]) -> "Parts":
    """The spans of a text; of a long one, threads or copies of this process read the later shares."""
    global _read_bytes
    _read_bytes += len(data)
    scans, count = _scans(), max(min(copyable_cores(), len(spans) // STRETCHES_PER_COPY), 1)
    # If the first stretch between head and tail can be scanned: threads, which need not send what they read.
    by_threads = scans is not None and len(spans) > 2 and scans(data)(*spans[1]) is not None
    if by_threads:
        several = [spans[1:-1][i : i + SCANNED_AT_ONCE] for i in range(0, len(spans) - 2, SCANNED_AT_ONCE)]
        spans = [spans[0], *((one[0][0], one[-1][1]) for one in several), spans[-1]]
    size = -(-len(spans) // count)

    def read(begin: int) -> "Parts":
        reader = kineto.Reader(data, where)
        reader.scan = scans(data) if scans is not None else None
        return read_stretches(reader, reader.stretches(spans[begin : begin + size]))

    with ExitStack() as others:  # `in_copies` counts shares; here the bar counts bytes
        pool = others.enter_context(ThreadPoolExecutor(count))
        later = [pool.submit(read, begin).result if by_threads else others.enter_context(in_copy(partial(read, begin)))
                 for begin in range(size, len(spans), size)]  # fmt: skip
        parts = read(0)
        for other in later:
            parts.extend(other())
    return parts


class EventReader(Protocol):
    """What reads a file of any format."""

    head: kineto.Head
    dropped: Counter[str]


def read_stretches(reader: EventReader, stretches: Iterator[list[Any] | Stretch]) -> "Parts":
    """All events that a reader makes, stretch by stretch."""
    parts = Parts()
    for events in stretches:
        add(parts, Structs.of(events) if isinstance(events, list) else events)
        del events  # before the next stretch is decoded
    parts.head, parts.dropped = reader.head, reader.dropped
    return parts


def assemble_events(reader: EventReader, stretches: Iterator[list[Any]], where: str) -> Assembled:
    """One table of all events that a reader makes."""
    return _table(read_stretches(reader, stretches), where)


DTYPES = {
    "device": np.int32,
    "bytes": np.float64,
    "kind": np.int8,
    "name": np.int32,
    **dict.fromkeys(TEXT_FIELDS, np.int32),
}
COLUMNS = ("kind", "name", "start_ns", "duration_ns", "thread", "device", "stream", "correlation", "external_id",
           "sequence", "wait_event", "waiting_stream", "bytes", *TEXT_FIELDS, *SIDE_FIELDS)  # fmt: skip


def _stacked(columns: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    """[num_events] a column of all stretches."""
    dtype = np.dtype(DTYPES.get(name, np.int64))
    return np.concatenate([
        one[name] if name in one else np.full(len(one["kind"]), unknown(dtype), dtype=dtype) for one in columns
    ])  # fmt: skip


def _table(parts: "Parts", where: str) -> Assembled:
    """All stretches as one table, sorted; refuses a file without events."""
    if not parts.size:
        raise InputError("holds no event that can be used", where=where, remedy="record at least one whole step")
    texts, codes, kind = parts.names.uniques(), *(_stacked(parts.columns, name) for name in ("name", "kind"))
    if max(map(len, texts)) > MAX_NAME_CHARS:  # which a profiler never writes
        merged, texts = coded([t[:MAX_NAME_CHARS] for t in texts])
        codes = merged[codes]
    marks = np.array([text.startswith(ANNOTATION_NAMES) for text in texts])[codes]  # old files list them as operators
    kind = np.where((kind == KIND_CODES[EventKind.CPU_OP]) & marks, KIND_CODES[EventKind.ANNOTATION], kind)
    order = _order(parts, kind, where)

    def sort(name: str) -> np.ndarray:
        column = _stacked(parts.columns, name)[order]
        for one in parts.columns if name != "kind" else ():
            one.pop(name, None)
        return column

    with ThreadPoolExecutor(usable_cores()) as pool:
        columns: dict[str, Any] = dict(zip(COLUMNS, pool.map(sort, COLUMNS), strict=True))
    first = int(columns["start_ns"][0])
    columns["start_ns"] -= first
    columns["event_id"] = np.arange(len(order), dtype=np.int64)
    columns["kind"] = schema.categorical(kind[order], [str(k) for k in EventKind])
    columns["name"] = schema.categorical(codes[order], texts)
    for name in JSON_FIELDS:
        columns[name] = json_column(columns[name], parts.texts[name].uniques(), name, parts.dropped)
    columns |= {name: launch_column(columns[name], parts.texts[name].uniques(), name) for name in LAUNCH_FIELDS}
    side = {name: columns.pop(name) for name in SIDE_FIELDS}
    stated = kineto.decoded(parts.head.baseTimeNanoseconds, int | float)  # the first event starts `first` ns after it
    usable = stated is not None and abs(stated) < MAX_ID and abs(int(stated) + first) < MAX_ID
    base = int(stated) + first if usable and stated is not None else first
    row = np.full(parts.size, -1, dtype=np.int64)  # of each place in the file
    row[order] = np.arange(len(order))
    metadata = {int(row[place]): args for place, args in parts.metadata.items() if row[place] >= 0}
    timed = [f for f in parts.flows if f[3] != MISSING_NS]
    on = threads(lane_column([f[2] for f in timed])).tolist()
    flows = [(f[0], f[1], thread, f[3] - first) for f, thread in zip(timed, on, strict=True)]
    return Assembled(columns, kind[order], texts, side, metadata, flows, base, parts.head, parts.dropped)


def _order(parts: "Parts", kind: np.ndarray, where: str) -> np.ndarray:
    """Row numbers sorted by start, longer first, then by the id that ops get when they start; broken rows left out."""
    start, duration, number = (_stacked(parts.columns, name) for name in ("start_ns", "duration_ns", "external_id"))
    broken = (start == MISSING_NS) | (duration < 0) | (duration > MAX_WINDOW_NS)
    if broken.all():
        raise InputError("holds no event with a usable time", where=where, remedy="record the run again")
    broken |= np.abs(start - np.median(start[~broken])) > MAX_WINDOW_NS
    order = sorted_rows(start, lambda rows: (
        np.where(kind[rows] <= LAST_OP_CODE, number[rows], -1), -duration[rows]))  # fmt: skip
    if not broken.any():
        return order
    parts.dropped["events with a missing, negative or absurd time"] = int(broken.sum())
    return order[~broken[order]]
