"""The program's own events of one thread, and their begins and ends in order, without their times.

An op that is answered without data is dispatched once more, by its own name: what is in there is left out, and what a real op would have done there is put in:

    aten::ones_like | aten::ones_like: aten::empty_strided ... | fill          ->   aten::ones_like | aten::fill_
    LogSoftmaxBackward0 | aten::detach | aten::_log_softmax_backward_data       ->   without the detach
    evaluate_function: AddBackward0 | aten::add                                 ->   aten::add_
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gnnperf.capture.works import FILL

Event = dict[str, Any]  # as Kineto writes it
Filled = tuple[tuple[int, ...], str]  # shape and dtype of what a factory fills
# Ranges that the profiler itself adds, and those of dispatch modes: a program without them has none.
_NOT_OF_THE_PROGRAM = ("PythonDispatchMode", "PyTorch Profiler", "PythonSubclass", "Iteration Start", "Record Window End")
_BUILT_IN_NODE = re.compile(r"\w*Backward\d+$")  # of autograd; a program's own functions have no number
_ENGINE = "autograd::engine::evaluate_function"


@dataclass(frozen=True)
class Boundary:
    """Where an event begins or ends."""

    event: Event
    begins: bool


def program_events(events: Sequence[Event], filled: Sequence[Filled]) -> tuple[Event, ...]:
    """Complete events of the program, in order of start, outer ones first.

    Args:
        events: as profiled.
        filled: by number of the mark, what a factory fills.
    """
    own = [e for e in events if e.get("ph") == "X" and not str(e["name"]).startswith(_NOT_OF_THE_PROGRAM)]
    own.sort(key=lambda e: (e["ts"], -e["dur"], e.get("args", {}).get("External id", 0)))
    left_out_until, found, around = float("-inf"), [], list[Event]()
    for event in own:
        begin, end = event["ts"], event["ts"] + event["dur"]
        around = [e for e in around if e["ts"] + e["dur"] > begin]
        if begin < left_out_until:
            continue
        parent = str(around[-1]["name"]) if around else ""
        if event["name"] == parent or (event["name"] == "aten::detach" and _BUILT_IN_NODE.match(parent)):
            left_out_until = end
            continue
        around.append(event)
        found.append(_as_real(event, parent, filled))
    return tuple(found)


def _as_real(event: Event, parent: str, filled: Sequence[Filled]) -> Event:
    """The event as it would be if tensors held data."""
    name = str(event["name"])
    if name.startswith(FILL):
        shape, dtype = filled[int(name.removeprefix(FILL))]
        dims = {"Input Dims": [list(shape), []], "Input type": [dtype, "Scalar"]}
        return {**event, "name": "aten::fill_", "args": {**event.get("args", {}), **dims}}
    if name == "aten::add" and parent.startswith(_ENGINE):
        return {**event, "name": "aten::add_"}  # gradients are summed in place unless their tensor is a subclass
    return event


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
