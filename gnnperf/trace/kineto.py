"""Decode a Kineto file stretch by stretch: only the keys that are needed, straight from the bytes into structs.

The text is cut between events into stretches of a megabyte, and each is decoded, turned into columns and freed before
the next: memory stays near the size of the file, or of its columns if it is mapped. A million small strings
are what makes a decode slow, so `ph` and `cat`, which repeat on every event, are decoded as one of the known words,
and an event's arguments into one struct that names the few keys needed (shapes, values and launches stay undecoded, as
views of the bytes). A stretch with an unknown word, or a field of a wrong type, is decoded again the slower way, then
event by event.
"""

import gc
import mmap
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec
from msgspec import Raw

from gnnperf.core import EventKind, InputError, task
from gnnperf.trace.trace_sources import Text

# The words and fields of Kineto files that are read: kinds of events, their arguments, the top level.

Number = int | float | str | None

_WORDS = {
    EventKind.CPU_OP: "cpu_op Operator",  # the latter in 2020 and 2021
    EventKind.ANNOTATION: "user_annotation",
    EventKind.RUNTIME: "cuda_runtime cuda_driver Runtime hip_runtime roctracer_runtime xpu_runtime xpu_driver "
                       "mtia_runtime privateuse1_runtime privateuse1_driver",
    EventKind.KERNEL: "kernel Kernel concurrent_kernel mtia_ccp_events",
    EventKind.MEMCPY: "gpu_memcpy Memcpy", EventKind.MEMSET: "gpu_memset Memset", EventKind.SYNC: "cuda_sync",
}  # fmt: skip
KINDS: dict[str | None, EventKind] = {word: kind for kind, words in _WORDS.items() for word in words.split()}
FLOW = "fwdbwd"  # the only flow that is read; launches are tied by correlation
Phase = Literal["X", "B", "E", "i", "I", "s", "t", "f", "M", "C", "N", "O", "D", "b", "e", "n", "R", "c", "P"]
_OTHERS = ("python_function cpu_instant_event gpu_user_annotation overhead Trace ac2g async_cpu_to_gpu async "
           "cuda_profiler_range cuda_event python_gc critical_path")  # fmt: skip
Category: Any = Literal[(*KINDS, FLOW, *_OTHERS.split(), None)]


class Args(msgspec.Struct, gc=False, rename={
    "external_id": "External id", "external_id_2021": "external id", "sequence": "Sequence number",
    "forward_thread": "Fwd thread id", "event_index": "Ev Idx", "record_function": "Record function id",
    "dims": "Input Dims", "types": "Input type", "values": "Concrete Inputs",
    "wait_event": "wait_on_cuda_event_record_corr_id",
    "registers": "registers per thread", "shared_bytes": "shared memory", "occupancy": "est. achieved occupancy %",
}):  # fmt: skip
    """The arguments that are read of any event. -1 where absent."""

    external_id: int | None = -1
    external_id_2021: int | None = -1
    correlation: int | None = -1
    device: int | None = -1
    stream: int | None = -1
    sequence: int | None = -1
    forward_thread: int | None = -1
    event_index: int | None = -1
    record_function: int | None = -1
    dims: Raw = Raw(b"")
    types: Raw = Raw(b"")
    values: Raw = Raw(b"")
    bytes: float | None = None
    size: float | None = None  # MTIA's name for bytes
    wait_on_stream: int | None = -1
    wait_event: int | None = -1
    grid: Raw = Raw(b"")
    block: Raw = Raw(b"")
    registers: Raw = Raw(b"")
    shared_bytes: Raw = Raw(b"")
    occupancy: Raw = Raw(b"")


class CommArgs(Args, gc=False, rename={
    "collective": "Collective name", "in_elements": "In msg nelems", "out_elements": "Out msg nelems",
    "group_size": "Group size", "group_name": "Process Group Name", "group_id": "Process Group ID",
    "group_ranks": "Process Group Ranks", "rank_start": "Global rank start", "rank_stride": "Global rank stride",
    "source": "Src Rank", "target": "Dst Rank",
}):  # fmt: skip
    """The same with the metadata of collectives (torch >= 2.4)."""

    collective: str | None = None
    in_elements: float | None = None
    out_elements: float | None = None
    group_size: int | None = None
    group_name: Number = None
    group_id: int | None = None
    group_ranks: str | None = None
    rank_start: int | None = None
    rank_stride: int | None = None
    source: int | None = None
    target: int | None = None
    dtype: str | None = None


NO_ARGS = Args()
# Views of the text, which they keep in memory -> none.
NO_VIEWS = {name: Raw(b"") for name in Args.__struct_fields__ if isinstance(getattr(NO_ARGS, name), Raw)}
Span = tuple[int, int]  # where a text begins and ends


class Head(msgspec.Struct, gc=False):
    """The top level of a trace file, undecoded: a field of a wrong type costs that field only."""

    traceEvents: Raw = Raw(b"")
    nodes: Raw = Raw(b"")
    schema: Raw = Raw(b"")
    baseTimeNanoseconds: Raw = Raw(b"")
    deviceProperties: Raw = Raw(b"")
    distributedInfo: Raw = Raw(b"")


HEAD_FIELDS = ("baseTimeNanoseconds", "deviceProperties", "distributedInfo")  # that are read of a Kineto file


def decoded(raw: Raw, kind: Any) -> Any:
    """The value of a field; None where there is none, or none of this kind."""
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


METADATA_KEY = b'"Collective name"'


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the cycle collector off: a decode allocates a million objects and makes no cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Reader:
    """Reads one Kineto file.

    `head` is the top level without its events, complete once the stretches have been read; `dropped` counts the events
    left out, by reason; later stages add theirs.
    """

    def __init__(self, data: Text, where: str) -> None:
        self.data, self.where = data, where
        self.scan: Callable[[int, int], Any] | None = None  # of a stretch; None: not at all, or not what it holds
        self.head = Head()
        self.dropped: Counter[str] = Counter()

    def spans(self) -> list[Span]:
        """Where the text of each stretch begins and ends, about STRETCH_BYTES; one span if it cannot be cut."""
        events = EVENTS_KEY.search(self.data)
        spans, begin = [], 0
        at = events.end() + STRETCH_BYTES if events else len(self.data)
        while at < len(self.data):
            cut = BETWEEN.search(self.data, at, at + STRETCH_BYTES)
            if cut is not None:
                spans.append((begin, cut.start() + 1))
                at = begin = cut.end()
            at += STRETCH_BYTES
        if spans and events:  # what the text states before and after its events is decoded with few of these
            first = BETWEEN.search(self.data, events.end(), spans[0][1])
            last = BETWEEN.search(self.data, max(begin, len(self.data) - TAIL_BYTES))
            if first is not None:
                spans[:1] = [(0, first.start() + 1), (first.end(), spans[0][1])]
            if last is not None:
                spans.append((begin, last.start() + 1))
                begin = last.end()
        return [*spans, (begin, len(self.data))]

    def stretches(self, spans: Sequence[Span]) -> Iterator[list[Any]]:
        """The events of these spans, some thousands at a time, in file order; refuses JSON that is no trace.

        Raises msgspec.DecodeError: the text is not JSON, or is cut off, or cannot be cut into stretches.
        """
        text = memoryview(self.data)
        if spans == [(0, len(text))]:
            is_list = self.data[:64].lstrip(SPACE)[:1] == b"["  # without an object around it (2020)
            yield self._events(self.data) if is_list else self._of_object(self.data)
            return
        with task(f"reading {PurePosixPath(self.where).name}", spans[-1][1] - spans[0][0], "B") as advance:
            for begin, end in spans:
                if begin > 0 and end < len(text):
                    scanned = self.scan(begin, end) if self.scan else None
                    yield self._events(b"".join((b"[", text[begin:end], b"]"))) if scanned is None else scanned
                else:  # with what the text states before or after its events
                    open_, close = b'{"traceEvents":[' if begin else b"", b"]}" if end < len(text) else b""
                    yield self._of_object(b"".join((open_, text[begin:end], close)))
                if isinstance(self.data, mmap.mmap):
                    self.data.madvise(mmap.MADV_DONTNEED, begin // mmap.PAGESIZE * mmap.PAGESIZE, end - begin)
                advance(end - begin)

    def _of_object(self, text: Text) -> list[Any]:
        """The events of an object, and what else it states."""
        head = _decoded_head(text)
        if bytes(head.traceEvents)[:1] != b"[":
            raise InputError("is JSON but not a trace", where=self.where, allowed="a Kineto file with traceEvents")
        self.head = merged(self.head, head)
        return self._events(head.traceEvents)

    def _events(self, text: Text | Raw) -> list[Any]:
        """A list of events: fast, then with any words, then event by event."""
        with_metadata = METADATA_KEY in bytes(text)
        for known_words in (True, False):
            try:
                events = _decoder(False, with_metadata, known_words).decode(text)
                times = [e.ts for e in events[:LOOK_AT] + events[-LOOK_AT:]]
                if any(type(t) is float and abs(t) > LARGEST_EXACT_US for t in times):
                    events = _decoder(True, with_metadata, known_words).decode(text)
                return events
            except msgspec.ValidationError:
                continue
        return self._each(text, with_metadata)

    def _each(self, text: Text | Raw, with_metadata: bool) -> list[Any]:
        """Event by event: entries that are no events are dropped and counted, not the whole file."""
        result = []
        decoder = msgspec.json.Decoder(event_type(True, with_metadata, False), strict=False)
        for entry in msgspec.json.decode(text, type=list[Raw]):
            try:
                result.append(decoder.decode(entry))
            except msgspec.ValidationError:
                self.dropped["events with fields of a wrong type"] += 1
        return result


STRETCH_BYTES = 1 << 20
TAIL_BYTES = 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SPACE = BYTE_ORDER_MARK + b" \t\r\n"
EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
# Where an event ends and the next begins. No JSON string can hold this: its quotes would be escaped.
BETWEEN = re.compile(rb'\}\s*,\s*(?=\{\s*"ph"\s*:)')


# What a first look at a file of which some steps are read needs: begins and correlations.

STEP_MARK = re.compile(rb'"ProfilerStep#?\s*(\d{1,9})"[^{}]{0,300}?"ts"\s*:\s*([\d.]{1,24})')
LAUNCHES = frozenset(word for word, kind in KINDS.items() if kind is EventKind.RUNTIME)


class _Link(msgspec.Struct, gc=False):
    correlation: int | None = None


class Stamp(msgspec.Struct, gc=False):
    """When an event begins, and what ties it to others."""

    cat: str | None = None
    ts: float | None = None
    args: _Link | None = None


_decoded_head = msgspec.json.Decoder(Head, strict=False).decode


def merged(first: Head, second: Head) -> Head:
    """What either states, without a view of the text; the events of neither."""
    return Head(**{f: Raw(bytes(getattr(first, f)) or bytes(getattr(second, f))) for f in HEAD_FIELDS})


@cache
def event_type(exact: bool, with_metadata: bool, known_words: bool) -> type[msgspec.Struct]:
    """One line of `traceEvents`: with decimal times or not, with metadata of collectives or not, with any words or not.

    float64 cannot hold the nanoseconds of an absolute time in microseconds, hence the decimal.
    """
    args = CommArgs if with_metadata else Args
    return msgspec.defstruct("Event", [
        ("ph", Phase if known_words else str, ""),
        ("cat", Category if known_words else str | None, None),
        ("name", str, ""),
        ("pid", Number, None),
        ("tid", Number, None),
        ("ts", (Decimal if exact else int | float) | None, None),
        ("dur", int | float | None, None),
        ("id", Number, None),
        ("args", args | None, None),
    ], gc=False)  # fmt: skip


@cache
def _decoder(exact: bool, with_metadata: bool, known_words: bool) -> msgspec.json.Decoder[list[Any]]:
    event = event_type(exact, with_metadata, known_words)
    return msgspec.json.Decoder(list[event], strict=False)  # type: ignore[valid-type]


LARGEST_EXACT_US = 2.0**43  # above it, neighboring float64 are more than 1 ns apart
LOOK_AT = 16  # events that show whether a file's times are absolute


def read_head(data: Text, where: str) -> Head:
    """The top level of a file that may be an execution trace; refuses what is no JSON, or cut off."""
    try:
        return _decoded_head(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not readable JSON ({error}); it may be cut off", where=where,
                         remedy="copy or record the file again") from None  # fmt: skip


BARE_WORD = re.compile(rb"(?<=[:,\[\s])[-+]?(?:nan|inf|infinity|nan\(ind\))(?=\s*[,}\]])", re.I)
BAD_ESCAPE = re.compile(rb'\\\\|\\(?!["\\/bfnrtu])')


LONE_SURROGATE = re.compile(rb"\\u[dD][89abAB]\w\w(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]\w\w)\\u[dD][c-fC-F]\w\w")


def repair(data: Text) -> bytes:
    """What profilers are known to write and JSON does not allow: nan, inf, lone backslashes, broken text."""
    fixed = BAD_ESCAPE.sub(rb"\\\\", BARE_WORD.sub(b"null", bytes(data).removeprefix(BYTE_ORDER_MARK)))
    fixed = LONE_SURROGATE.sub(rb"\\ufffd", fixed)
    return fixed.decode("utf-8", errors="replace").encode()
