"""A captured rank as a Kineto file, with the ranges that gloo's threads would have left: trace -> graph reads on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gnnperf.core import InputError
from gnnperf.generate.capturing.logical_time import TICK_US, Timed
from gnnperf.generate.capturing.nesting import Event
from gnnperf.generate.capturing.works import Issued

# What gloo calls its range. It has no reduce-scatter: all of it is reduced everywhere.
_RANGES: Mapping[str, str] = {
    "c10d::allreduce_": "all_reduce",
    "c10d::_reduce_scatter_base_": "all_reduce", "c10d::reduce_scatter_": "all_reduce",
    "c10d::_allgather_base_": "all_gather", "c10d::allgather_": "all_gather",
    "c10d::alltoall_base_": "all_to_all", "c10d::alltoall_": "all_to_all", "c10d::broadcast_": "broadcast",
    "c10d::reduce_": "reduce", "c10d::gather_": "gather", "c10d::scatter_": "scatter", "c10d::barrier": "barrier",
    "c10d::send": "send", "c10d::recv_": "recv",
}  # fmt: skip
_TRANSPORT_THREAD = 1 << 30  # of the first group; programs have no such thread


def kineto_text(timed: Timed, world_size: int) -> bytes:
    """The file's content."""
    timed_events = [_at_its_time(event, timed) for event in timed.events]
    flows = _flows(timed)
    ranges = list(_ranges(timed))
    groups = [{"pg_name": str(i), "ranks": list(ranks)} for i, ranks in enumerate(timed.run.groups)]
    head = {"schemaVersion": 1, "record_shapes": 1, "baseTimeNanoseconds": 0, "deviceProperties": [],
            "distributedInfo": {"backend": "gloo", "rank": timed.run.rank, "world_size": world_size,
                                "pg_count": len(groups), "pg_config": groups}}  # fmt: skip
    return json.dumps({**head, "traceEvents": [*timed_events, *flows, *ranges]}).encode()


def _at_its_time(event: Event, timed: Timed) -> Event:
    begin, end = timed.clock.begin_us[id(event)], timed.clock.end_us[id(event)]
    return {**event, "ts": begin, "dur": end - begin}


def _flows(timed: Timed) -> list[Event]:
    """Arrows from forward to backward ops: both ends at the begins of their ops."""
    moved = {(e["tid"], e["ts"]): timed.clock.begin_us[id(e)] for e in timed.events}
    ends = [{**e, "ts": moved[e["tid"], e["ts"]]} for e in timed.run.arrows if (e["tid"], e["ts"]) in moved]
    both = {e["id"] for e in ends if e["ph"] == "s"} & {e["id"] for e in ends if e["ph"] == "f"}
    return [e for e in ends if e["id"] in both]


def _ranges(timed: Timed) -> Iterable[Event]:
    """One range per collective: from its issue to where it was waited for, or, where nobody did so by name, at once."""
    main = next((e["tid"] for e in timed.events if str(e["name"]).startswith("ProfilerStep")), 0)
    threads: dict[tuple[int, ...], int] = {}
    for number, begin_us in timed.clock.issued_us.items():
        issued = timed.run.issued[number]
        thread = main if issued.peer is not None else threads.setdefault(issued.group, _TRANSPORT_THREAD + len(threads))
        end_us = timed.clock.done_us.get(number, begin_us + TICK_US / 2)
        begin_us += TICK_US / 4
        yield {"ph": "X", "cat": "user_annotation", "name": f"gloo:{_range_name(issued)}", "pid": 0, "tid": thread,
               "ts": begin_us, "dur": end_us - begin_us, "args": _arguments(issued)}  # fmt: skip


def _range_name(issued: Issued) -> str:
    if issued.op not in _RANGES:
        raise InputError(f"{issued.op} cannot be captured", where="capture", allowed=", ".join(sorted(_RANGES)),
                         remedy="call its plain form, or record the program with gnnperf record")  # fmt: skip
    return _RANGES[issued.op]


def _arguments(issued: Issued) -> dict[str, Any]:
    shapes: Sequence[Any] = [list(shape) for shape in issued.dims]
    found: dict[str, Any] = {"Input Dims": shapes, "Input type": list(issued.types)}
    if issued.peer is None:
        found |= {"Collective name": _RANGES[issued.op], "Group size": len(issued.group),
                  "Process Group Ranks": str(list(issued.group))}  # fmt: skip
    return found
