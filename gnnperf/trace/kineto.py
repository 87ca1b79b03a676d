"""Decode a Kineto file: only the keys that are needed, straight from the bytes into structs.

A million small strings are what makes a decode slow, so the two fields that repeat on every event, `ph` and `cat`, are
decoded as one of the known words, and an event's arguments into one struct that names the few keys needed (shapes and
values stay undecoded, as views of the bytes). A file with an unknown word, or with a field of a wrong type, is decoded
again the slower way, then event by event.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Raw

from gnnperf.errors import InputError
from gnnperf.schema import EventKind

Number = int | float | str | None

KINDS: dict[str | None, EventKind] = {
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
    "concurrent_kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "Memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "Memset": EventKind.MEMSET,
    "cuda_sync": EventKind.SYNC,
}
FLOW = "fwdbwd"  # the only flow that is read; launches are tied by correlation
Phase = Literal["X", "B", "E", "i", "I", "s", "t", "f", "M", "C", "N", "O", "D", "b", "e", "n", "R", "c", "P"]
Category = Literal[
    "cpu_op", "Operator", "user_annotation", "cuda_runtime", "cuda_driver", "Runtime", "hip_runtime",
    "roctracer_runtime", "xpu_runtime", "xpu_driver", "mtia_runtime", "privateuse1_runtime", "privateuse1_driver",
    "kernel", "Kernel", "concurrent_kernel", "mtia_ccp_events", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset",
    "cuda_sync", "python_function", "cpu_instant_event", "gpu_user_annotation", "overhead", "Trace", "fwdbwd", "ac2g",
    "async_cpu_to_gpu", "async", "cuda_profiler_range", "cuda_event", "python_gc", "critical_path", None,
]  # fmt: skip


class Args(msgspec.Struct, gc=False, rename={
    "external_id": "External id", "external_id_2021": "external id", "sequence": "Sequence number",
    "forward_thread": "Fwd thread id", "event_index": "Ev Idx", "record_function": "Record function id",
    "dims": "Input Dims", "types": "Input type", "values": "Concrete Inputs", "wait_event": "wait_on_cuda_event_id",
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


class CommArgs(Args, gc=False, rename={
    "collective": "Collective name", "in_elements": "In msg nelems", "out_elements": "Out msg nelems",
    "group_size": "Group size", "group_name": "Process Group Name", "group_id": "Process Group ID",
    "group_ranks": "Process Group Ranks", "rank_start": "Global rank start", "rank_stride": "Global rank stride",
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
    dtype: str | None = None


METADATA_KEY = b'"Collective name"'
NO_ARGS = Args()


class Head(msgspec.Struct, gc=False):
    """The top level of a trace file, its events and nodes left undecoded."""

    traceEvents: Raw = Raw(b"")
    nodes: Raw = Raw(b"")
    schema: Number = None
    baseTimeNanoseconds: Number = None
    deviceProperties: Raw = Raw(b"null")
    distributedInfo: Raw = Raw(b"null")


@dataclass(frozen=True)
class Decoded:
    """A Kineto file after decoding.

    Attributes:
        events: kept events, in file order; each has ph, cat, name, pid, tid, ts, dur, args (Args or None).
        flows: forward-backward arrows, both ends.
        head: the top level without its events.
        dropped: how many events were left out, by reason; later stages add theirs.
    """

    events: list[Any]
    flows: list[Any]
    head: Head
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


def decode(data: bytes, where: str) -> Decoded:
    """Decode the JSON text of a Kineto file; a bare list (2020) is its events.

    Raises:
        InputError: not JSON, cut off, or not a trace.
    """
    with no_collection():
        try:
            return _decode(data, where)
        except msgspec.ValidationError:
            raise InputError("is JSON but not a trace", where=where, allowed="a Kineto file with traceEvents") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _decode_repaired(data, where, error)


def _decode_repaired(data: bytes, where: str, error: Exception) -> Decoded:
    if data[:64].lstrip(SPACE)[:1] not in (b"{", b"["):
        raise InputError("is not a trace file", where=where, allowed="JSON with traceEvents, packed or not") from None
    repaired = repair(data)
    try:
        if repaired != data:
            return _decode(repaired, where)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise InputError(f"is not readable JSON ({error}); it may be cut off", where=where,
                     remedy="copy or record the file again") from None  # fmt: skip


SPACE = b"\xef\xbb\xbf \t\r\n"


def _decode(data: bytes, where: str) -> Decoded:
    dropped: dict[str, int] = {}
    head, events = _read_events(data, where, dropped)
    kept = [e for e in events if e.ph == "X" and e.cat in KINDS]
    flows = [e for e in events if e.cat == FLOW]
    return Decoded(kept, flows, head, dropped)


def _read_events(data: bytes, where: str, dropped: dict[str, int]) -> tuple[Head, list[Any]]:
    """Fast, then with any words and exact times, then event by event."""
    is_list = data[:64].lstrip(SPACE)[:1] == b"["
    with_metadata = METADATA_KEY in data
    for known_words in (True, False):
        try:
            head, events = _read(data, is_list, _event_type(False, with_metadata, known_words))
            if _needs_exact(events):
                del head, events
                head, events = _read(data, is_list, _event_type(True, with_metadata, known_words))
            return head, events
        except msgspec.ValidationError:
            continue
    head = Head(traceEvents=Raw(data)) if is_list else msgspec.json.decode(data, type=Head, strict=False)
    if not bytes(head.traceEvents):
        raise InputError("is JSON but not a trace", where=where, allowed="a Kineto file with traceEvents")
    return head, _read_each(head.traceEvents, _event_type(True, with_metadata, False), dropped)


def _read(data: bytes, is_list: bool, event: type[msgspec.Struct]) -> tuple[Head, list[Any]]:
    if is_list:
        return Head(), msgspec.json.decode(data, type=list[event], strict=False)  # type: ignore[valid-type]
    file = msgspec.json.decode(data, type=_file_type(event), strict=False)
    head = Head(baseTimeNanoseconds=file.baseTimeNanoseconds, deviceProperties=file.deviceProperties,
                distributedInfo=file.distributedInfo)  # fmt: skip
    return head, file.traceEvents


def _read_each(raw: Raw, event: type[msgspec.Struct], dropped: dict[str, int]) -> list[Any]:
    """Event by event: entries that are no events are dropped and counted, not the whole file."""
    decoder, found = msgspec.json.Decoder(event, strict=False), []
    for entry in msgspec.json.decode(raw, type=list[Raw]):
        try:
            found.append(decoder.decode(entry))
        except msgspec.ValidationError:
            dropped["events with fields of a wrong type"] = dropped.get("events with fields of a wrong type", 0) + 1
    return found


@cache
def _event_type(exact: bool, with_metadata: bool, known_words: bool) -> type[msgspec.Struct]:
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
def _file_type(event: type[msgspec.Struct]) -> Any:
    return msgspec.defstruct("File", [
        ("traceEvents", list[event]),  # type: ignore[valid-type]
        ("baseTimeNanoseconds", Number, None),
        ("deviceProperties", Raw, Raw(b"null")),
        ("distributedInfo", Raw, Raw(b"null")),
    ], gc=False)  # fmt: skip


LARGEST_EXACT_US = 2.0**43  # above it, neighboring float64 are more than 1 ns apart
LOOK_AT = 1000  # events that show whether a file's times are absolute


def _needs_exact(events: list[Any]) -> bool:
    times = [e.ts for e in events if e.ph == "X"][:LOOK_AT] if len(events) < LOOK_AT else [e.ts for e in events[-LOOK_AT:]]
    return any(type(t) is float and abs(t) > LARGEST_EXACT_US for t in times)


def read_head(data: bytes, where: str) -> Head:
    """The top level of a file that may be an execution trace.

    Raises:
        InputError: not JSON, or cut off.
    """
    try:
        return msgspec.json.decode(data, type=Head, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not readable JSON ({error}); it may be cut off", where=where,
                         remedy="copy or record the file again") from None  # fmt: skip


BARE_WORD = re.compile(rb"(?<=[:,\[\s])[-+]?(?:nan|inf|infinity|nan\(ind\))(?=\s*[,}\]])", re.I)
BAD_ESCAPE = re.compile(rb'\\\\|\\(?!["\\/bfnrtu])')


def repair(data: bytes) -> bytes:
    """What profilers are known to write and JSON does not allow: nan, inf, lone backslashes, broken UTF-8."""
    fixed = BAD_ESCAPE.sub(rb"\\\\", BARE_WORD.sub(b"null", data))
    return fixed.decode("utf-8", errors="replace").encode()
