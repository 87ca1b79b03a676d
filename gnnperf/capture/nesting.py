"""The events of one thread as begins and ends in their order, without their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]  # as Kineto writes it
# Ranges that the profiler itself adds, and those of dispatch modes: a program without them has none.
_NOT_OF_THE_PROGRAM = ("PythonDispatchMode", "PyTorch Profiler", "PythonSubclass", "Iteration Start", "Record Window End")


@dataclass(frozen=True)
class Boundary:
    """Where an event begins or ends."""

    event: Event
    begins: bool


def program_events(events: Sequence[Event]) -> list[Event]:
    """Complete events of the program, in order of start, outer ones first."""
    own = [e for e in events if e.get("ph") == "X" and not str(e["name"]).startswith(_NOT_OF_THE_PROGRAM)]
    return sorted(own, key=lambda e: (e["ts"], -e["dur"], e.get("args", {}).get("External id", 0)))


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
