"""Decoded events -> numpy columns, stretch by stretch, in file order."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import attrgetter, is_
from typing import Any

import numpy as np

from gnnperf.core import EventKind
from gnnperf.trace.columns import Codes, float_column, int_column, lane_column, ns_column, thread_column
from gnnperf.trace.kineto import FLOW, KINDS, NO_ARGS, Args, CommArgs

KIND_CODES = {kind: code for code, kind in enumerate(EventKind)}
KIND_OF_WORD = {word: KIND_CODES[kind] for word, kind in KINDS.items()}
LAST_OP_CODE = KIND_CODES[EventKind.ANNOTATION]  # kinds are in this order: ops and annotations, runtime, device side
LAST_HOST_CODE = KIND_CODES[EventKind.RUNTIME]
MTIA_KINDS = {"event_wait": EventKind.SYNC, "event_record": EventKind.SYNC, "dma_request": EventKind.MEMCPY}
JSON_FIELDS = {"input_dims": "dims", "input_types": "types", "input_values": "values"}
SIDE_FIELDS = ("forward_thread", "event_index", "record_function")


@dataclass
class Parts:
    """What has been read of a file so far.

    Attributes:
        columns: of each stretch: arrays [num_events of the stretch]; a column that a stretch lacks is unknown there.
        names: codes of event names, over all stretches.
        texts: codes of undecoded shapes, dtypes and values, over all stretches.
        metadata: place in the file -> metadata of a collective.
        flows: ph, id, tid and ts of forward-backward arrows.
        size: number of events.
    """

    columns: list[dict[str, np.ndarray]] = field(default_factory=list)
    names: Codes = field(default_factory=Codes)
    texts: dict[str, Codes] = field(default_factory=lambda: {name: Codes() for name in JSON_FIELDS})
    metadata: dict[int, CommArgs] = field(default_factory=dict)
    flows: list[Any] = field(default_factory=list)
    size: int = 0


def add(parts: Parts, events: list[Any]) -> None:
    """Add the columns of one stretch of events."""
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
        "duration_ns": ns_column([e.dur for e in rows]),
        "external_id": _external_ids(args),
    }
    columns |= _of(kind <= LAST_OP_CODE, args, lambda a: _op_columns(a, parts.texts))
    columns |= _of(kind > LAST_OP_CODE, args, lambda a: {"correlation": int_column([x.correlation for x in a])})
    columns |= _of(kind <= LAST_HOST_CODE, rows, lambda e: {"thread": thread_column([x.tid for x in e])})
    if (kind > LAST_HOST_CODE).any():
        columns |= _device_columns(rows, args, kind)
    if isinstance(next((a for a in args if a is not NO_ARGS), None), CommArgs):  # one type in all of a stretch
        stated = [(i, a) for i, a in enumerate(args) if isinstance(a, CommArgs) and a.collective is not None]
        parts.metadata |= {parts.size + i: a for i, a in stated}
    parts.columns.append(columns)
    parts.size += len(rows)


def _kinds(rows: list[Any]) -> np.ndarray:
    """[n] int8 kind codes; MTIA's device kinds are in the names."""
    words = list(map(attrgetter("cat"), rows))
    kind = np.fromiter(map(KIND_OF_WORD.__getitem__, words), np.int8, len(words))
    if "mtia_ccp_events" in words:
        kind[:] = [KIND_CODES[MTIA_KINDS[e.name]] if e.cat == "mtia_ccp_events" and e.name in MTIA_KINDS else k
                   for e, k in zip(rows, kind.tolist(), strict=True)]  # fmt: skip
    return kind


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
        columns[name] = np.full(len(rows), unknown(column.dtype), dtype=column.dtype)
        columns[name][rows] = column
    return columns


def unknown(dtype: np.dtype[Any]) -> float:
    """What stands for unknown in a column of this dtype."""
    return np.nan if dtype.kind == "f" else -1


def _op_columns(args: list[Args], texts: dict[str, Codes]) -> dict[str, np.ndarray]:
    columns = {name: int_column(list(map(attrgetter(name), args))) for name in ("sequence", *SIDE_FIELDS)}
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
        "device": np.where((device >= 0) & (device < 2**31), device, -1).astype(np.int32),
        "stream": np.where(awaited, stated["awaited"], stream),
        "waiting_stream": np.where(awaited, stated["stream"], -1),
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
