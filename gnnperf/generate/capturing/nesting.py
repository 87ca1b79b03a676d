"""The program's own events of one thread, and their begins and ends in order, without their times.

An op that is answered without data is dispatched once more, by its own name: what is in there is left out.
What autograd does otherwise with tensors that hold no data is put right:

    aten::linear | aten::addmm | aten::addmm: aten::empty_strided ...         ->   aten::linear | aten::addmm
    LogSoftmaxBackward0 | aten::detach | aten::_log_softmax_backward_data       ->   without the detach
    evaluate_function: AddBackward0 | aten::add                                 ->   aten::add_
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gnnperf.generate.capturing.works import SHARED

Event = dict[str, Any]  # as Kineto writes it
# Ranges that the profiler itself adds, and those of dispatch modes: a program without them has none.
_NOT_OF_THE_PROGRAM = (
    "PythonDispatchMode",
    "PyTorch Profiler",
    "PythonSubclass",
    "Iteration Start",
    "Record Window End",
)
_BUILT_IN_NODE = re.compile(r"\w*Backward\d+$")  # of autograd; a program's own functions have no number
# (node of autograd, op) -> the op that it runs where tensors hold data, and how many more scalars that takes
_IN_PLACE = {
    ("BinaryCrossEntropyWithLogitsBackward0", "aten::sub"): ("aten::sub_", 0),
    ("BinaryCrossEntropyWithLogitsBackward0", "aten::mul"): ("aten::mul_", 0),
    ("IndexBackward0", "aten::index_put"): ("aten::_index_put_impl_", 1),
}
# (node of autograd, op) that only tensors without data need: sparse gradients are otherwise taken, not copied.
_NOT_THERE = {("torch::autograd::AccumulateGrad", "aten::clone")}
_ENGINE = "autograd::engine::evaluate_function"


@dataclass(frozen=True)
class Boundary:
    """Where an event begins or ends."""

    event: Event
    begins: bool


def program_events(events: Sequence[Event]) -> tuple[Event, ...]:
    """Complete events of the program, in order of start, outer ones first."""
    own = [e for e in events if e.get("ph") == "X" and not str(e["name"]).startswith(_NOT_OF_THE_PROGRAM)]
    own.sort(key=lambda e: (e["ts"], -e["dur"], e.get("args", {}).get("External id", 0)))
    left_out_until, result, around = float("-inf"), list[Event](), list[Event]()
    for event in own:
        begin, end = event["ts"], event["ts"] + event["dur"]
        around = [e for e in around if e["ts"] + e["dur"] > begin]
        if begin < left_out_until:
            continue
        parent = str(around[-1]["name"]) if around else ""
        if event["name"] == SHARED and result[-1]["name"] == "aten::add_":
            result[-1] = {**result[-1], "name": "aten::add"}
        if event["name"] in (parent, SHARED) or (parent, event["name"]) in _NOT_THERE or _is_unpacking(event, parent):
            left_out_until = end
            continue
        around.append(event)
        result.append(_as_real(event, parent))
    return tuple(result)


def _is_unpacking(event: Event, parent: str) -> bool:
    """Whether autograd takes out a tensor that it saved: a tensor with data is taken as it is."""
    return event["name"] == "aten::detach" and _BUILT_IN_NODE.match(parent) is not None


def _as_real(event: Event, parent: str) -> Event:
    """The event as it would be if tensors held data: where autograd may write in place, it does."""
    name = str(event["name"])
    if name == "aten::add" and parent.startswith(_ENGINE):
        return {**event, "name": "aten::add_"}
    twin = _IN_PLACE.get((parent, name))
    return event if twin is None else {**event, "name": twin[0], "args": _with_more(event.get("args", {}), twin[1])}


def _with_more(args: dict[str, Any], scalars: int) -> dict[str, Any]:
    """The same arguments and some scalars more."""
    more: dict[str, list[Any]] = {"Input Dims": [[]], "Input type": ["Scalar"], "Input Strides": [[]]}
    return {**args, **{key: args[key] + value * scalars for key, value in more.items() if key in args}}


def boundaries(events: Sequence[Event]) -> Iterator[Boundary]:
    """Begins and ends of sorted events; one that outlasts the event around it ends with it."""
    open_events: list[tuple[float, Event]] = []  # end, event
    for event in events:
        while open_events and open_events[-1][0] <= event["ts"]:
            yield Boundary(open_events.pop()[1], begins=False)
        end = event["ts"] + event["dur"]
        if open_events:
            end = min(end, open_events[-1][0])
        open_events.append((end, event))
        yield Boundary(event, begins=True)
    while open_events:
        yield Boundary(open_events.pop()[1], begins=False)
