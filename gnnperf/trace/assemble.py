"""Decoded events -> one sorted table of one rank, before linking."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress, repeat
from operator import attrgetter, is_
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.schema import EventKind
from gnnperf.trace.columns import (
    categorical,
    coded,
    float_column,
    int_column,
    json_column,
    lane_column,
    ns_column,
    text_column,
    thread_column,
)
from gnnperf.trace.kineto import KINDS, NO_ARGS, Args, Decoded
from gnnperf.trace.limits import MAX_NAME_CHARS, MAX_YEARS_NS

KIND_CODES = {kind: code for code, kind in enumerate(EventKind)}
KIND_OF_WORD = {word: KIND_CODES[kind] for word, kind in KINDS.items()}
LAST_OP_CODE = KIND_CODES[EventKind.ANNOTATION]  # kinds are in this order: ops and annotations, runtime, device side
LAST_HOST_CODE = KIND_CODES[EventKind.RUNTIME]
ANNOTATION_NAMES = ("ProfilerStep", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#")
MTIA = "mtia_ccp_events"
MTIA_KINDS = {"event_wait": EventKind.SYNC, "event_record": EventKind.SYNC, "dma_request": EventKind.MEMCPY}


@dataclass(frozen=True)
class Assembled:
    """The rows of one rank, sorted by start, longer first, outer op first.

    Attributes:
        columns: every column of schema.EVENT_COLUMNS that a single event states; arrays or categoricals [num_events].
        kind: [num_events] int8, code of EventKind in KIND_CODES.
        forward_thread: [num_events] int64, "Fwd thread id" of a backward op; -1 or 0 on others.
        base_ns: absolute time of start_ns = 0.
        file_start_ns: start_ns = 0 in the file's own time, to place flows.
        file_args: the decoded arguments, in file order.
        order: [num_events] the place of each row in the file.
    """

    columns: dict[str, Any]
    kind: np.ndarray
    forward_thread: np.ndarray
    base_ns: int
    file_start_ns: int
    file_args: list[Args]
    order: np.ndarray

    def __len__(self) -> int:
        return len(self.order)

    def args(self, row: int) -> Args:
        """The decoded arguments of a row."""
        return self.file_args[self.order[row]]

    def number(self, field: str) -> np.ndarray:
        """[num_events] int64: an argument that is no column, -1 unknown."""
        return int_column([getattr(a, field) for a in self.file_args])[self.order]

    def is_kind(self, *kinds: EventKind) -> np.ndarray:
        """[num_events] bool: rows of one of these kinds."""
        wanted = np.zeros(len(KIND_CODES), dtype=bool)
        wanted[[KIND_CODES[k] for k in kinds]] = True
        return wanted[self.kind]


def assemble(decoded: Decoded) -> Assembled:
    """One table of all kept events; broken ones are dropped and counted in `decoded.dropped`."""
    events = decoded.events
    args = [NO_ARGS if e.args is None else e.args for e in events]
    name = _cut(text_column([e.name for e in events]))
    kind = _kinds(events, name)
    start, duration = _times(events)
    columns: dict[str, Any] = {"name": name, "start_ns": start, "duration_ns": duration,
                               "external_id": _external_ids(args)}  # fmt: skip
    columns |= _of(kind <= LAST_OP_CODE, args, _op_columns)
    columns |= _of(kind > LAST_OP_CODE, args, lambda a: {"correlation": int_column([x.correlation for x in a])})
    columns |= _of(kind <= LAST_HOST_CODE, events, lambda e: {"thread": thread_column([x.tid for x in e])})
    columns |= _device_columns(events, args, kind)
    order = _order(start, duration, kind, columns["external_id"], decoded.dropped)
    columns = {n: values[order] for n, values in columns.items()}
    first = int(columns["start_ns"][0]) if len(order) else 0
    columns["start_ns"] -= first
    columns["kind"] = categorical(kind[order], [str(k) for k in EventKind])
    columns["event_id"] = np.arange(len(order), dtype=np.int64)
    forward_thread = columns.pop("forward_thread")
    return Assembled(columns, kind[order], forward_thread, _base_time_ns(decoded) + first, first, args, order)


def _cut(name: pd.Categorical) -> pd.Categorical:
    """Over-long names cut; a profiler writes none."""
    texts = list(name.categories)
    if max(map(len, texts), default=0) <= MAX_NAME_CHARS:
        return name
    codes, cut = coded([t[:MAX_NAME_CHARS] for t in texts])
    return categorical(codes[name.codes], cut)


def _kinds(events: list[Any], name: pd.Categorical) -> np.ndarray:
    """[n] int8 kind codes; step marks that old files list as operators are annotations; MTIA's kinds are in names."""
    kind = np.array([KIND_OF_WORD[e.cat] for e in events], dtype=np.int8)
    marks = np.array([text.startswith(ANNOTATION_NAMES) for text in name.categories] + [False])
    kind[(kind == KIND_CODES[EventKind.CPU_OP]) & marks[name.codes]] = KIND_CODES[EventKind.ANNOTATION]
    device = np.flatnonzero(kind == KIND_CODES[EventKind.KERNEL]).tolist()
    if any(events[i].cat == MTIA for i in device[:1]):
        kind[device] = [KIND_CODES[MTIA_KINDS.get(events[i].name, EventKind.KERNEL)] for i in device]
    return kind


def _times(events: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Start and duration [n] in ns; a missing one makes the duration negative."""
    starts = [e.ts for e in events]
    start, duration = ns_column(starts), ns_column([e.dur for e in events])
    if None in starts:
        duration[[i for i, t in enumerate(starts) if t is None]] = -1
    return start, duration


def _external_ids(args: list[Args]) -> np.ndarray:
    """[n] "External id", which 2021 files write in lower case on runtime calls and device work."""
    ids = int_column([a.external_id for a in args])
    if (ids >= 0).all():
        return ids
    return np.where(ids >= 0, ids, int_column([a.external_id_2021 for a in args]))


def _of(rows: np.ndarray, values: list[Any], build: Any) -> dict[str, Any]:
    """Columns [n] that only some rows [n] bool have, unknown elsewhere."""
    return {name: _spread(rows, column) for name, column in build(list(compress(values, rows.tolist()))).items()}


def _spread(rows: np.ndarray, column: Any) -> Any:
    if isinstance(column, pd.Categorical):
        return categorical(_spread(rows, column.codes.astype(np.int32)), list(column.categories))
    full = np.full(len(rows), np.nan if column.dtype.kind == "f" else -1, dtype=column.dtype)
    full[rows] = column
    return full


def _op_columns(args: list[Args]) -> dict[str, Any]:
    return {
        "sequence": int_column([a.sequence for a in args]),
        "forward_thread": int_column([a.forward_thread for a in args]),
        "input_dims": _json(args, "dims"),
        "input_types": _json(args, "types"),
        "input_values": _json(args, "values"),
    }


def _json(args: list[Args], field: str) -> pd.Categorical:
    raw = list(map(attrgetter(field), args))
    if all(map(is_, raw, repeat(getattr(NO_ARGS, field)))):
        return categorical(np.full(len(raw), -1, dtype=np.int32), [])
    return json_column(list(map(bytes, raw)))


def _device_columns(events: list[Any], args: list[Args], kind: np.ndarray) -> dict[str, Any]:
    """Devices, streams, awaited events and bytes of the device side."""
    side = kind > LAST_HOST_CODE  # [n]
    lanes = _of(side, events, lambda e: {"process": lane_column([x.pid for x in e]), "lane": lane_column([x.tid for x in e])})
    stated = _of(side, args, _stated_device_columns)
    awaited = (kind == KIND_CODES[EventKind.SYNC]) & (stated["awaited"] >= 0)  # [n]
    stream = np.where(stated["stream"] >= 0, stated["stream"], lanes["lane"])
    device = np.where(stated["device"] >= 0, stated["device"], lanes["process"])
    return {
        "device": np.where(np.abs(device) < 2**31, device, -1).astype(np.int32),
        "stream": np.where(awaited, stated["awaited"], stream),
        "wait_event": stated["wait_event"],
        "bytes": stated["bytes"],
    }


def _stated_device_columns(args: list[Args]) -> dict[str, Any]:
    return {
        "device": int_column([a.device for a in args]),
        "stream": int_column([a.stream for a in args]),
        "awaited": int_column([a.wait_on_stream for a in args]),
        "wait_event": int_column([a.wait_event for a in args]),
        "bytes": float_column([a.size if a.bytes is None else a.bytes for a in args]),
    }


def _order(start: np.ndarray, duration: np.ndarray, kind: np.ndarray, external: np.ndarray,
           dropped: dict[str, int]) -> np.ndarray:  # fmt: skip
    """Row numbers sorted by start, longer first, then by the id that ops get when they start; broken rows left out."""
    broken = (duration < 0) | (duration > MAX_YEARS_NS)
    if not broken.all():
        broken |= np.abs(start - int(np.median(start[~broken]))) > MAX_YEARS_NS
    if broken.any():
        dropped["events with a missing, negative or absurd time"] = int(broken.sum())
    order = np.lexsort((np.where(kind <= LAST_OP_CODE, external, -1), -duration, start))
    return order[~broken[order]] if broken.any() else order


def _base_time_ns(decoded: Decoded) -> int:
    base = decoded.head.baseTimeNanoseconds
    try:
        return int(base) if base is not None and abs(int(base)) < 2**62 else 0
    except (ValueError, OverflowError):
        return 0
