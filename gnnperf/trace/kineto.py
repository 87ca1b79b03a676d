"""Decode a Kineto file: only the keys that are needed, arguments only for the kinds of event that are kept.

An event's `args` object is the bulk of a file. It stays undecoded (`msgspec.Raw`, a view of the file's bytes) until the
event's kind is known, and is then decoded kind by kind into a struct that names the few keys needed. Python stack
events, memory instants and flow arrows are never decoded further.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

import msgspec
from msgspec import Raw

from gnnperf.errors import InputError
from gnnperf.schema import EventKind

Number = int | float | str | None
T = TypeVar("T", bound=msgspec.Struct)

KINDS: dict[str, EventKind] = {
    "cpu_op": EventKind.CPU_OP,
    "Operator": EventKind.CPU_OP,  # 2020 and 2021
    "user_annotation": EventKind.ANNOTATION,
    "cuda_runtime": EventKind.RUNTIME,
    "cuda_driver": EventKind.RUNTIME,
    "Runtime": EventKind.RUNTIME,
    "hip_runtime": EventKind.RUNTIME,
    "roctracer_runtime": EventKind.RUNTIME,
    "xpu_runtime": EventKind.RUNTIME,
    "xpu_driver": EventKind.RUNTIME,
    "mtia_runtime": EventKind.RUNTIME,
    "privateuse1_runtime": EventKind.RUNTIME,
    "privateuse1_driver": EventKind.RUNTIME,
    "kernel": EventKind.KERNEL,
    "Kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "Memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "Memset": EventKind.MEMSET,
    "cuda_sync": EventKind.SYNC,
}
FLOW = "fwdbwd"  # the only flow that is read; launches are tied by correlation


class Event(msgspec.Struct, gc=False):
    """One line of `traceEvents`, its arguments left undecoded."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: Number = None
    tid: Number = None
    ts: int | float | None = None
    dur: int | float | None = None
    id: Number = None
    args: Raw = Raw(b"{}")


class ExactEvent(Event, gc=False):
    """The same with a decimal time stamp: float64 cannot hold nanoseconds of an absolute time in microseconds."""

    ts: Decimal | None = None


class TraceFile(msgspec.Struct, gc=False):
    """The top level of a Kineto file or execution trace: the keys that are read, nothing else."""

    traceEvents: Raw = Raw(b"")
    nodes: Raw = Raw(b"")
    schema: Number = None
    schemaVersion: Number = None
    baseTimeNanoseconds: Number = None
    deviceProperties: Raw = Raw(b"null")
    distributedInfo: Raw = Raw(b"null")


class HostArgs(msgspec.Struct, gc=False, rename={
    "external_id": "External id", "sequence": "Sequence number", "forward_thread": "Fwd thread id",
    "event_index": "Ev Idx", "record_function": "Record function id", "dims": "Input Dims", "types": "Input type",
    "values": "Concrete Inputs",
}):  # fmt: skip
    """Arguments of a CPU op or annotation."""

    external_id: int | None = None
    sequence: int | None = None
    forward_thread: int | None = None
    event_index: int | None = None
    record_function: int | None = None
    dims: Raw = Raw(b"")
    types: Raw = Raw(b"")
    values: Raw = Raw(b"")


class RuntimeArgs(msgspec.Struct, gc=False, rename={
    "external_id": "External id", "external_id_2021": "external id",
}):  # fmt: skip
    """Arguments of a runtime or driver call."""

    correlation: int | None = None
    external_id: int | None = None
    external_id_2021: int | None = None


class DeviceArgs(msgspec.Struct, gc=False, rename={
    "external_id": "External id", "external_id_2021": "external id", "wait_event": "wait_on_cuda_event_id",
}):  # fmt: skip
    """Arguments of device work, and of the synchronization records beside it."""

    correlation: int | None = None
    external_id: int | None = None
    external_id_2021: int | None = None
    device: int | None = None
    stream: int | None = None
    bytes: float | None = None
    size: float | None = None  # MTIA's name for bytes
    wait_on_stream: int | None = None
    wait_event: int | None = None


ARGS_OF: dict[EventKind, type[msgspec.Struct]] = {
    EventKind.CPU_OP: HostArgs,
    EventKind.ANNOTATION: HostArgs,
    EventKind.RUNTIME: RuntimeArgs,
    EventKind.KERNEL: DeviceArgs,
    EventKind.MEMCPY: DeviceArgs,
    EventKind.MEMSET: DeviceArgs,
    EventKind.SYNC: DeviceArgs,
}


@dataclass(frozen=True)
class Decoded:
    """A Kineto file after decoding.

    Attributes:
        events: kept events by kind, in file order, arguments undecoded.
        flows: forward-backward arrows, both ends.
        head: the top level.
        dropped: how many events were left out, by reason; the next stages add theirs.
    """

    events: dict[EventKind, list[Event]]
    flows: list[Event]
    head: TraceFile
    dropped: dict[str, int]


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


def read_head(data: bytes, where: str) -> TraceFile:
    """The top level of a trace file, events and nodes left undecoded; a bare list (2020) is its events.

    Raises:
        InputError: not JSON, cut off, or neither an object nor a list.
    """
    if data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        return TraceFile(traceEvents=Raw(data))
    try:
        return msgspec.json.decode(data, type=TraceFile, strict=False)
    except msgspec.ValidationError:
        raise InputError("is JSON but not a trace", where=where, allowed="a Kineto file with traceEvents") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not readable JSON ({error}); it may be cut off", where=where,
                         remedy="copy or record the file again") from None  # fmt: skip


def decode(head: TraceFile, where: str) -> Decoded:
    """Decode the events of one file.

    Raises:
        InputError: `traceEvents` is cut off or not a list of events.
    """
    with no_collection():
        dropped: dict[str, int] = {}
        events = _decode_events(head.traceEvents, dropped, where)
        by_kind: dict[EventKind, list[Event]] = {kind: [] for kind in EventKind}
        flows = []
        for event in events:
            if event.ph == "X":
                kind = KINDS.get(event.cat)  # type: ignore[arg-type]
                if kind is not None:
                    by_kind[kind].append(event)
            elif event.cat == FLOW:
                flows.append(event)
    return Decoded(by_kind, flows, head, dropped)


def _decode_events(raw: Raw, dropped: dict[str, int], where: str) -> list[Event]:
    """Events with float time stamps where those are exact to the nanosecond, else with decimal ones."""
    events = _decode_list(raw, Event, dropped, where)
    if any(type(e.ts) is float and abs(e.ts) > LARGEST_EXACT_US for e in events):
        del events
        return _decode_list(raw, ExactEvent, {}, where)  # type: ignore[return-value]
    return events


LARGEST_EXACT_US = 2.0**43  # above it, neighbouring float64 are more than 1 ns apart


def _decode_list(raw: Raw, kind: type[T], dropped: dict[str, int], where: str) -> list[T]:
    """A JSON list of structs; entries of a wrong type are dropped and counted, not the whole file."""
    try:
        return msgspec.json.decode(raw, type=list[kind])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not readable JSON ({error}); it may be cut off", where=where,
                         remedy="copy or record the file again") from None  # fmt: skip
    try:
        entries = msgspec.json.decode(raw, type=list[Raw])
    except msgspec.ValidationError:
        raise InputError("traceEvents is not a list", where=where, allowed="a list of events") from None
    return _decode_each(entries, kind, dropped, "events with fields of a wrong type")


def _decode_each(
    entries: Sequence[Raw], kind: type[T], dropped: dict[str, int], reason: str, default: T | None = None
) -> list[T]:
    decoder = msgspec.json.Decoder(kind, strict=False)
    found = []
    for entry in entries:
        try:
            found.append(decoder.decode(entry))
        except msgspec.ValidationError:
            dropped[reason] = dropped.get(reason, 0) + 1
            if default is not None:
                found.append(default)
    return found


CHUNK = 1 << 15  # events whose arguments are joined and decoded at once: bounds the copy


def decode_args(rows: Sequence[Event], kind: type[T], dropped: dict[str, int]) -> list[T]:
    """The arguments of `rows` as structs of one kind; unreadable ones are empty and counted."""
    decoder = msgspec.json.Decoder(list[kind], strict=False)  # type: ignore[valid-type]
    found: list[T] = []
    for start in range(0, len(rows), CHUNK):
        entries = [row.args for row in rows[start : start + CHUNK]]
        try:
            found += decoder.decode(b"[" + b",".join(entries) + b"]")
        except msgspec.ValidationError:
            found += _decode_each(entries, kind, dropped, "events with unreadable arguments", kind())
    return found


BARE_WORD = re.compile(rb"(?<=[:,\[\s])-?(?:nan|inf|NaN|Infinity|INF|NAN|-nan\(ind\))(?=\s*[,}\]])")
BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrtu])')


def repair(data: bytes) -> bytes:
    """What profilers are known to write and JSON does not allow: nan, inf, lone backslashes, broken UTF-8."""
    fixed = BAD_ESCAPE.sub(rb"\\\\", BARE_WORD.sub(b"null", data))
    return fixed.decode("utf-8", errors="replace").encode()
