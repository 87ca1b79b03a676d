"""SQLite export of Nsight Systems (`nsys export --type sqlite`) -> the events that a Kineto file would hold.

The export states times in ns, serialized process and thread ids, and names as ids of the table StringIds. The schema is
documented in "SQLite Schema Reference" of the Nsight Systems Analysis Guide; tables without rows are left out.

table                                  event
CUPTI_ACTIVITY_KIND_KERNEL             kernel with grid, block, registers and shared memory
CUPTI_ACTIVITY_KIND_MEMCPY, _MEMSET    copy, memset
CUPTI_ACTIVITY_KIND_RUNTIME            runtime or driver call, tied to device work by its correlation
CUPTI_ACTIVITY_KIND_SYNCHRONIZATION    wait; the stream of an awaited event is that of CUPTI_ACTIVITY_KIND_CUDA_EVENT
NVTX_EVENTS                            step mark, op of torch.autograd.profiler.emit_nvtx, or annotation
"""

import re
import sqlite3
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from gnnperf.core import InputError, untrusted
from gnnperf.trace.kineto import Args, Head, event_type
from gnnperf.trace.limits import MAX_NAME_CHARS

# A database of strangers, read in place: plain tables only, no extension, bounded steps and texts.

MAX_TEXT_BYTES = 2**20  # of one value
BASE_STEPS, STEPS_PER_BYTE = 2_000_000, 8  # of the database engine; an export takes about one per byte
STEPS_AT_ONCE = 10_000
PLAIN = ("CREATE TABLE ", "CREATE INDEX ", "CREATE UNIQUE INDEX ")
# Columns of texts.
TEXTS = ("name", "value", "text", "tag", "string", "type", "product_name", "display_name", "kernel_name")
EVENT_BYTES = 300  # memory of one event while its table is made
ROWS_AT_ONCE = 20_000
EXPORT = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
TRACE = "profile again with nsys profile --trace=cuda,nvtx"
EACH_RANK = "torchrun --no-python nsys profile -o rank_%q{RANK} python train.py"


class Database:
    """Rows of the tables that are named, as whole numbers and texts; anything else is None."""

    def __init__(self, connection: sqlite3.Connection, size: int, where: str) -> None:
        self.connection, self.size, self.where = connection, size, where
        self.steps = BASE_STEPS + STEPS_PER_BYTE * size
        self.characters = 0
        self.texts: dict[int | None, str] = {None: ""}
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.text_factory = lambda data: data.decode(errors="replace")
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.set_progress_handler(self._exhausted, STEPS_AT_ONCE)
        self.tables = self._tables()

    def _exhausted(self) -> bool:
        self.steps -= STEPS_AT_ONCE
        return self.steps < 0

    def _tables(self) -> set[str]:
        """Names of the tables; refuses views and virtual tables, which compute what they hold."""
        tables = set()
        for name, text in self.connection.execute("SELECT name, sql FROM sqlite_master"):
            if str(name).startswith("rocpd_") and not str(text).startswith(PLAIN):
                continue  # rocprof's views, which are never read
            if text is not None and not str(text).startswith(PLAIN):
                raise InputError("holds a view, trigger or virtual table, which no export does", where=self.where,
                                 remedy=EXPORT)  # fmt: skip
            if str(text).startswith("CREATE TABLE "):
                tables.add(str(name))
        return tables

    def rows(self, table: str, columns: str, optional: str = "", of: str = "") -> Iterator[tuple[Any, ...]]:
        """The rows of a table, none where there is no such table; a missing column of `columns` raises InputError.

        Columns are separated by spaces; a missing one of `optional` gives None. `of` is a condition in SQL.
        """
        if table not in self.tables:
            return
        stated = {row[1] for row in self.connection.execute(f'PRAGMA table_info("{table}")')}  # not computed ones
        if missing := [name for name in columns.split() if name not in stated]:
            raise InputError(f"lacks the column {missing[0]} of {table}", where=self.where, remedy=EXPORT)
        names = (columns + " " + optional).split()
        chosen = ", ".join(_plain(name) if name in stated else "NULL" for name in names)
        yield from self.connection.execute(f'SELECT {chosen} FROM "{table}" {of and "WHERE " + of}')

    def counted(self, text: str) -> str:
        """The text, which was read; refuses more texts than the file can hold, as pages that rows share would."""
        self.characters += len(text)
        if self.characters > self.size:
            raise InputError("states more text than the file has bytes", where=self.where, remedy=EXPORT)
        return text

    def text(self, number: int | None) -> str:
        """A text of StringIds; "" where there is none of this number."""
        if number not in self.texts:
            row = next(self.rows("StringIds", "value", of=f"id = {number}"), ("",))
            self.texts[number] = self.counted(row[0] or "")
        return self.texts[number]


def _plain(column: str) -> str:
    """SQL of a value of the kind that the column states; NULL for others."""
    if column in TEXTS:
        return f"CASE typeof({column}) WHEN 'text' THEN substr({column}, 1, {MAX_NAME_CHARS}) END"
    return f'CASE typeof("{column}") WHEN \'integer\' THEN "{column}" END'


# Rows -> events.

VERSION = re.compile(r"3(?:\.\d{1,4}){1,2}")
TID = (1 << 24) - 1  # of a serialized id: 24 bits each of process and thread
NO_ID = 2**32 - 1  # what CUPTI writes for none
COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
MANAGED_COPIES = (11, 12, 13)
MEMORIES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
WAITS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
WAITS_FOR_EVENT = (1, 2)
PUSHED, STARTED = 59, 60  # kinds of NVTX ranges: nvtxRangePush, which nest on a thread, and nvtxRangeStart
VERSION_OF_CALL = re.compile(r"_v\d{4,5}$")  # cudaLaunchKernel_v7000
MARK = re.compile(r"(ProfilerStep|iteration|iter|step)[ _:#=]*(\d{1,9})", re.I)
MARK_WORDS = ("profilerstep", "iteration", "iter", "step")  # the first that a file has marks its steps
OP = re.compile(  # what torch/csrc/profiler writes: "aten::mm, seq = 3, op_id = 7, sizes = [[8, 4], [4, 2]]"
    r"((?:autograd::engine::evaluate_function: )?(?:\w+(?:::\w[\w.]*)+|\w+Backward\d*))"
    r"(?:, seq = (\d{1,18}))?(?:, op_id = (\d{1,18}))?(?:, sizes = (\[[\[\]0-9, ]*\]))?(?:, input_op_ids = .*)?",
    re.ASCII,
)
BACKWARD = re.compile(r"Backward\d*$")
Event = event_type(exact=False, with_metadata=False, known_words=True)


class Reader:
    """Reads one export of one process.

    `head` has devices and the absolute time of the start, complete once the stretches have been read; `dropped` counts
    the events left out, by reason.
    """

    def __init__(self, path: Path, where: str) -> None:
        self.path, self.where = path, where
        self.head = Head()
        self.dropped: Counter[str] = Counter()

    def stretches(self) -> Iterator[list[Any]]:
        """The events, some thousands at a time, in the order of the tables.

        Raises InputError: not an export that can be read.
        """
        size, count = self.path.stat().st_size, 0
        with untrusted.reading(self.where, "is not a readable SQLite file", remedy=EXPORT):
            uri = f"{self.path.resolve().as_uri()}?mode=ro&immutable=1"
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                database = Database(connection, size, self.where)
                if any(name.startswith("rocpd_") for name in database.tables):
                    from gnnperf.trace.rocpd import Rocpd  # its layout only

                    session = Rocpd(database)
                    self.head, events = session.head, session.events()
                else:
                    process = _process(database)
                    self.head, events = _head(database, process), self._events(database, process)
                while stretch := list(islice(events, ROWS_AT_ONCE)):
                    count += len(stretch)
                    untrusted.require_memory(EVENT_BYTES * count, size, self.where)
                    yield stretch

    def _events(self, database: Database, process: int) -> Iterator[Any]:
        on_device, on_host = f"globalPid = {process}", f"(globalTid & ~{TID}) = {process}"
        yield from _kernels(database, on_device)
        yield from self._copies(database, on_device)
        yield from _waits(database, on_device)
        calls = "start end globalTid correlationId nameId"
        for start, end, thread, correlation, name in database.rows("CUPTI_ACTIVITY_KIND_RUNTIME", calls, of=on_host):
            called = VERSION_OF_CALL.sub("", database.text(name))
            yield event_of("cuda_runtime", called, start, end, thread & TID, Args(correlation=_id(correlation)))
        yield from _ranges(database, on_host)
        for _ in database.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start", of=on_device):
            self.dropped["launches of CUDA graphs whose kernels nsys profile --cuda-graph-trace=node records"] += 1

    def _copies(self, database: Database, of: str) -> Iterator[Any]:
        stated = "start end deviceId streamId correlationId bytes"
        for *at, kind, source, target in database.rows(
            "CUPTI_ACTIVITY_KIND_MEMCPY", stated + " copyKind", "srcKind dstKind", of
        ):
            if kind in MANAGED_COPIES:  # which Kineto does not record either
                self.dropped["copies of managed memory"] += 1
                continue
            ends = f" ({MEMORIES[source]} -> {MEMORIES[target]})" if {source, target} <= set(MEMORIES) else ""
            yield device_event("gpu_memcpy", f"Memcpy {COPIES.get(kind, 'Unknown')}{ends}", at)
        for *at, memory in database.rows("CUPTI_ACTIVITY_KIND_MEMSET", stated, "memKind", of):
            yield device_event("gpu_memset", f"Memset ({MEMORIES.get(memory, 'Unknown')})", at)


def _process(database: Database) -> int:
    """The serialized id of the process that runs kernels; refuses databases of others, and reports without CUDA."""
    where, allowed = database.where, "an export of Nsight Systems with schema version 3.x"
    if "META_DATA_EXPORT" not in database.tables:
        raise InputError("is an SQLite file without META_DATA_EXPORT", where=where, allowed=allowed, remedy=EXPORT)
    stated = dict(database.rows("META_DATA_EXPORT", "name value"))
    version = stated.get("EXPORT_SCHEMA_VERSION") or "unknown"
    if not VERSION.fullmatch(version):
        raise InputError(f"has schema version {version[:40]!r}", where=where, allowed=allowed,
                         remedy=f"{EXPORT} with nsys of 2024 or later, which reads older reports")  # fmt: skip
    for table in ("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        if table not in database.tables:
            raise InputError(f"has no table {table}: no kernel was recorded", where=where, remedy=TRACE)
    processes = {row[0] for row in database.rows("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid")}
    if len(processes) != 1 or None in processes:
        raise InputError(f"holds kernels of {len(processes)} processes", where=database.where,
                         allowed="one rank per file", remedy=f"profile each rank by itself: {EACH_RANK}")  # fmt: skip
    return int(processes.pop())


def _head(database: Database, process: int) -> Head:
    """Devices in the order of their CUDA ids, and the absolute time of the start."""
    columns = "name totalMemory clockRate smCount"
    gpus = {row[0]: row[1:] for row in database.rows("TARGET_INFO_GPU", "id", columns)}
    in_order = [gpus[number] for number in sorted(gpus, key=lambda n: n or 0)]
    known = f"pid = {(process >> 24) & TID}"
    for gpu, cuda in database.rows("TARGET_INFO_CUDA_DEVICE", "gpuId cudaId", of=known):
        if gpu in gpus and cuda is not None and 0 <= cuda < len(in_order):
            in_order[cuda] = gpus[gpu]
    devices = [{"name": name or "", "totalGlobalMem": memory, "clockRate": clock and clock / 1000, "numSms": num_sms}
               for name, memory, clock, num_sms in in_order]  # fmt: skip
    start = next(database.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"), (None,))[0]
    return Head(deviceProperties=Raw(msgspec.json.encode(devices)), baseTimeNanoseconds=Raw(msgspec.json.encode(start)))


def event_of(category: str, name: str, start: int | None, end: int | None, tid: int | None, args: Args) -> Any:
    """An event, begin and end in ns."""
    duration = None if start is None or end is None else (end - start) / 1000
    return Event("X", category, name, None, tid, None if start is None else start / 1000, duration, None, args)


def _id(value: int | None) -> int:
    """-1 for none."""
    return -1 if value is None or value == NO_ID else value


def device_event(category: str, name: str, at: Sequence[int | None], **args: Any) -> Any:
    """Device work; `at` has begin, end, device, stream, correlation and, for copies, bytes."""
    start, end, device, stream, correlation, *size = at
    stated = Args(correlation=_id(correlation), device=_id(device), stream=_id(stream),
                  bytes=size[0] if size else None, **args)  # fmt: skip
    return event_of(category, name, start, end, _id(stream), stated)


def _kernels(database: Database, of: str) -> Iterator[Any]:
    columns = (
        "start end deviceId streamId correlationId demangledName gridX gridY gridZ blockX blockY blockZ"
        " registersPerThread staticSharedMemory dynamicSharedMemory"
    )
    for *at, name, gx, gy, gz, bx, by, bz, registers, static, dynamic in database.rows(
        "CUPTI_ACTIVITY_KIND_KERNEL", columns, of=of
    ):
        shared = "" if static is None or dynamic is None else static + dynamic
        yield device_event(
            "kernel", database.text(name), at, grid=as_raw([gx, gy, gz]), block=as_raw([bx, by, bz]),
            registers=as_raw(registers), shared_bytes=as_raw(shared),
        )  # fmt: skip


def as_raw(value: object) -> Raw:
    """A number or a list of numbers as JSON."""
    return Raw(str(value).encode())


def _waits(database: Database, of: str) -> Iterator[Any]:
    """Waits; one for an event names the record before it, by correlation: that is the one it waits for."""
    records: dict[int | None, list[tuple[int, int]]] = defaultdict(list)  # event -> correlation and stream of each
    stated = "eventId correlationId streamId"
    for event, correlation, stream in database.rows("CUPTI_ACTIVITY_KIND_CUDA_EVENT", stated, of=of):
        records[event].append((_id(correlation), _id(stream)))
    for of_event in records.values():
        of_event.sort()
    columns = "start end deviceId streamId correlationId syncType eventId"
    for *at, kind, event in database.rows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", columns, of=of):
        before = records[event][: bisect_left(records[event], (_id(at[4]), -1))] if kind in WAITS_FOR_EVENT else []
        recorded, awaited = before[-1] if before else (-1, -1)
        yield device_event("cuda_sync", WAITS.get(kind, "Sync"), at, wait_on_stream=awaited, wait_event=recorded)


def _ranges(database: Database, of: str) -> Iterator[Any]:
    columns, optional = "start end eventType globalTid", "text textId domainId"
    chosen = f"eventType IN ({PUSHED}, {STARTED}) AND {of}"
    rows = database.rows("NVTX_EVENTS", columns, optional, chosen)
    return range_events(
        (start, end, thread & TID, database.text(number) if given is None else database.counted(given),
         kind == PUSHED and not domain)  # libraries have domains of their own
        for start, end, kind, thread, given, number, domain in rows
    )  # fmt: skip


def range_events(ranges: Iterable[tuple[int | None, int | None, int, str, bool]]) -> Iterator[Any]:
    """Ops at once; the others when it is known which of them mark steps.

    Of each range: begin, end, thread, text, and whether it may be an op.
    """
    others, words = [], set()
    for start, end, thread, text, may_be_op in ranges:
        op = OP.fullmatch(text) if may_be_op else None
        if op is None:
            mark = MARK.fullmatch(text)
            words |= {mark[1].lower()} if mark else set()
            others.append((start, end, thread, text, mark))
            continue
        name, sequence, own_id, sizes = op.groups()
        args = Args(external_id=int(own_id or -1), sequence=int(sequence or -1), dims=Raw((sizes or "").encode()),
                    forward_thread=1 if sequence and BACKWARD.search(name) else -1)  # fmt: skip
        yield event_of("cpu_op", name, start, end, thread, args)
    word = next((word for word in MARK_WORDS if word in words), "")
    for start, end, thread, text, mark in others:
        name = f"ProfilerStep#{mark[2]}" if mark and mark[1].lower() == word else text
        yield event_of("user_annotation", name, start, end, thread, Args())
