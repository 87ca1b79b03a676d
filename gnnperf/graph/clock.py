"""A rank's device clock against its host clock.

host     launch |                      sync returns |
device            kernel |-----------|
         kernel start >= launch start, and kernel end <= return of the call that waited for it: the device clock's
offset is bracketed. It is moved only as far as the bracket demands (offsets of -80 to +70 us were seen).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.graph.calls import CallClass
from gnnperf.graph.event_columns import RankEvents
from gnnperf.trace import TraceTable

_LAUNCH_FLOOR_NS = 1_000  # no kernel starts within a microsecond of the beginning of its launch call
_TRUSTED_SHARE = 0.001  # a few events are out of order for other reasons


@dataclass(frozen=True)
class ClockBracket:
    """Bounds on what must be added to device times; `shift_ns` is the smallest shift inside them."""

    low_ns: float
    high_ns: float

    @property
    def shift_ns(self) -> int:
        """The shift closest to zero that satisfies the launches first, then the waits."""
        return round(max(self.low_ns, min(0.0, self.high_ns)))


def clock_bracket(events: RankEvents) -> ClockBracket:
    """Bracket the device clock of one rank; infinite bounds where nothing bounds it."""
    launch = events.column("launch_event")
    index = np.flatnonzero(events.is_device & (launch >= 0))
    if not len(index):
        return ClockBracket(-np.inf, np.inf)
    delay = events.start_ns[index] - events.start_ns[launch[index]]  # [num_launched]
    low = _LAUNCH_FLOOR_NS - float(np.quantile(delay, _TRUSTED_SHARE, method="lower"))
    return ClockBracket(low, _sync_bound(events, index, launch[index]))


def _sync_bound(events: RankEvents, index: np.ndarray, launch: np.ndarray) -> float:
    """Return of each device synchronization minus the end of the last work launched before it."""
    sync = np.flatnonzero(events.calls == CallClass.SYNC_DEVICE)
    order = np.argsort(events.start_ns[launch])
    launched_ns = events.start_ns[launch[order]]
    last_end = np.maximum.accumulate(events.end_ns[index[order]])
    count = np.searchsorted(launched_ns, events.start_ns[sync])
    known = count > 0
    room = events.end_ns[sync[known]] - last_end[count[known] - 1]
    return float(room.min()) if len(room) else np.inf


def correct_clock(table: TraceTable, shift_ns: int) -> TraceTable:
    """The same table with device times moved by `shift_ns`."""
    if shift_ns == 0:
        return table
    events = table.events
    on_device = (events["device"] >= 0).to_numpy() & (events["thread"] < 0).to_numpy()
    moved = events.assign(start_ns=np.where(on_device, events["start_ns"] + shift_ns, events["start_ns"]))
    return replace(table, events=moved)
