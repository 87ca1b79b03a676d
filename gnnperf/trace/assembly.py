"""The events of a Kineto file -> one sorted table of one rank, before linking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from gnnperf.core import EventKind, InputError
from gnnperf.trace.columns import MISSING_NS, Codes, categorical, coded, json_column, ns_column, thread_column
from gnnperf.trace.extract import JSON_FIELDS, KIND_CODES, LAST_OP_CODE, SIDE_FIELDS, Parts, add, unknown
from gnnperf.trace.kineto import SPACE, CommArgs, Head, Reader, decoded, no_collection, repair
from gnnperf.trace.limits import MAX_ID, MAX_NAME_CHARS, MAX_WINDOW_NS

ANNOTATION_NAMES = ("ProfilerStep", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#")


@dataclass(frozen=True)
class Assembled:
    """The rows of one rank, sorted by start, longer first, outer op first.

    Attributes:
        columns: every column of schema.EVENT_COLUMNS that a single event states; arrays or categoricals [num_events].
        kind: [num_events] int8, code of EventKind in KIND_CODES.
        names: the text of each code of the column `name`.
        side: [num_events] int64 each of SIDE_FIELDS, -1 unknown: for linking only.
        metadata: row -> metadata of a collective, where the event has any.
        flows: forward-backward arrows, both ends, times in ns on the table's scale.
        base_ns: absolute time of start_ns = 0.
        head: the file's top level.
        dropped: how many events were left out, by reason.
    """

    columns: dict[str, Any]
    kind: np.ndarray
    names: list[str]
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


def assemble(data: bytes, where: str) -> Assembled:
    """One table of all events of a Kineto file's JSON text; broken events are dropped and counted.

    Raises:
        InputError: not JSON, cut off, not a trace, or no event that can be used.
    """
    if data[:64].lstrip(SPACE)[:1] not in (b"{", b"["):
        raise InputError("is not a trace file", where=where, allowed="JSON with traceEvents, packed or not")
    with no_collection():
        try:
            return _table(*_parts(Reader(data, where), in_stretches=True))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _table(*_parts_in_one_piece(data, where))


def _parts_in_one_piece(data: bytes, where: str) -> tuple[Parts, Reader]:
    """What cannot be cut into stretches; and what profilers are known to break, repaired."""
    problem = ""
    for text in (data, repair(data)):
        try:
            return _parts(Reader(text, where), in_stretches=False)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = problem or str(error)
    raise InputError(f"is not readable JSON ({problem}); it may be cut off", where=where,
                     remedy="copy or record the file again") from None  # fmt: skip


def _parts(reader: Reader, *, in_stretches: bool) -> tuple[Parts, Reader]:
    parts = Parts()
    for events in reader.stretches() if in_stretches else [reader.one_piece()]:
        add(parts, events)
        del events  # before the next stretch is decoded
    if not parts.size:
        raise InputError("holds no event that can be used", where=reader.where, remedy="record at least one whole step")
    return parts, reader


DTYPES = {
    "device": np.int32,
    "bytes": np.float64,
    "kind": np.int8,
    "name": np.int32,
    **dict.fromkeys(JSON_FIELDS, np.int32),
}
COLUMNS = ("kind", "name", "start_ns", "duration_ns", "thread", "device", "stream", "correlation", "external_id",
           "sequence", "wait_event", "waiting_stream", "bytes", *JSON_FIELDS, *SIDE_FIELDS)  # fmt: skip


def _table(parts: Parts, reader: Reader) -> Assembled:
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
        columns[name] = json_column(columns[name], parts.texts[name].uniques(), name, reader.dropped)
    side = {name: columns.pop(name) for name in SIDE_FIELDS}
    base = _base_time_ns(reader.head, first)
    flows = _flows(parts.flows, first)
    return Assembled(
        columns, kind[order], texts, side, _by_row(parts.metadata, order), flows, base, reader.head, reader.dropped
    )


def _stacked(parts: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    dtype = np.dtype(DTYPES.get(name, np.int64))
    return np.concatenate(
        [p[name] if name in p else np.full(len(p["kind"]), unknown(dtype), dtype=dtype) for p in parts]
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
    broken = (start == MISSING_NS) | (duration < 0) | (duration > MAX_WINDOW_NS)
    if broken.all():
        raise InputError("holds no event with a usable time", where=reader.where, remedy="record the run again")
    broken |= np.abs(start - np.median(start[~broken])) > MAX_WINDOW_NS
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


def _base_time_ns(head: Head, first: int) -> int:
    """Absolute time of the first event, which starts `first` ns after the file's base."""
    base = decoded(head.baseTimeNanoseconds, int | float)
    usable = base is not None and abs(base) < MAX_ID and abs(int(base) + first) < MAX_ID
    return int(base) + first if usable and base is not None else first
