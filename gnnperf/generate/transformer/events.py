"""What waits for events: edges between streams that the order of launches only does not give.

compute  |- k0 -| Record e        |- k2 -|
                        \\            ^ Await f
other            Await e `->|- copy -| Record f

An event is the last work that its lane had been given, and what the lane itself was instructed to wait for since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gnnperf.core import Relation
from gnnperf.generate.transformer.items import Await, HostAwait, Lane, Placed, Record, Transfer
from gnnperf.generate.transformer.rows import FIRST_WORK, lane_of
from gnnperf.graph import EdgeList

NONE = -1
# Kinds of items: kernels of the compute stream; transfers that the compute stream waits for, or not; device work that
# waits for events only; blocking waits for all of it; records and waits of events; other work of the host.
KERNEL, AWAITED, UNAWAITED, ASIDE, WAIT, EVENT, HOST = range(7)
LAUNCHED = (KERNEL, AWAITED, UNAWAITED, ASIDE)
Result = list[tuple[int, int]]  # (position in the program, node)


@dataclass
class _Reader:
    """Goes through a program's events in order.

    Attributes:
        program, begin, kind: of [num_items]; see event_waits.
        by_lane: lane -> positions of the items with work on it.
        recorded: event -> nodes whose ends it is.
        pending: lane -> what it was instructed to wait for, and where.
        edges: (src, dst, lag class).
    """

    program: Sequence[Placed]
    begin: np.ndarray
    kind: np.ndarray
    by_lane: dict[Lane, np.ndarray]
    recorded: dict[str, tuple[int, ...]] = field(default_factory=dict)
    pending: dict[Lane, Result] = field(default_factory=lambda: defaultdict(list))
    edges: list[tuple[int, int, str]] = field(default_factory=list)

    def record(self, at: int, lane: Lane, event: str) -> None:
        """Name what the lane has been given so far."""
        last = self._before(lane, at)
        ends = [self._end(last)] if last >= 0 else []
        self.recorded[event] = (*ends, *(node for place, node in self._held(lane, at) if place > last))

    def wait(self, at: int, lane: Lane, event: str) -> None:
        """The lane's next work begins after the event; on the compute stream, whatever follows it, too."""
        nodes = self.recorded.get(event, ())
        last = self._before(lane, at)
        self.pending[lane] = [*(held for held in self.pending[lane] if held[0] > last), *((at, node) for node in nodes)]
        kernel = self._after(lane, at)
        heirs = [kernel, *(self._followers(at, kernel) if lane is Lane.COMPUTE else ())]
        for heir in heirs:
            if heir < len(self.program):
                blocking = self.kind[heir] == WAIT
                dst = int(self.begin[heir]) + (0 if blocking else FIRST_WORK)
                self.edges += [(node, dst, "sync" if blocking else "event") for node in nodes]

    def host_wait(self, at: int, event: str) -> None:
        """The host goes on after the event."""
        self.edges += [(node, int(self.begin[at]), "sync") for node in self.recorded.get(event, ())]

    def _held(self, lane: Lane, at: int) -> Result:
        """What holds the lane's next work back: its own waits, and transfers that the compute stream waits for."""
        held = self.pending[lane]
        if lane is not Lane.COMPUTE:
            return held
        last = self._before(lane, at)
        return held + [(place, self._end(place)) for place in range(last + 1, at) if self.kind[place] == AWAITED]

    def _followers(self, at: int, kernel: int) -> list[int]:
        """Transfers and blocking waits before the compute stream's next kernel, which wait for what it waits for."""
        stop = min(kernel, len(self.program))
        return [place for place in range(at + 1, stop) if self.kind[place] in (AWAITED, UNAWAITED, WAIT)]

    def _before(self, lane: Lane, at: int) -> int:
        places = self.by_lane.get(lane, _NOTHING)
        number = int(np.searchsorted(places, at))
        return int(places[number - 1]) if number else NONE

    def _after(self, lane: Lane, at: int) -> int:
        places = self.by_lane.get(lane, _NOTHING)
        number = int(np.searchsorted(places, at))
        return int(places[number]) if number < len(places) else len(self.program)

    def _end(self, place: int) -> int:
        """The node at whose end an item's device work is done: the exit of a transfer."""
        return int(self.begin[place]) + FIRST_WORK + int(isinstance(self.program[place].item, Transfer))


_NOTHING = np.zeros(0, dtype=np.int64)


def event_waits(edges: EdgeList, program: Sequence[Placed], begin: np.ndarray, kind: np.ndarray) -> None:
    """Add the waits of a program's events.

    Args:
        edges: of the rank.
        program: its items.
        begin: [num_items] first node of each item.
        kind: [num_items] KERNEL to HOST.
    """
    places = np.flatnonzero(kind == EVENT)
    if not len(places):
        return
    reader = _Reader(program, begin, kind, _by_lane(program, kind))
    for at in places.tolist():
        item = program[at].item
        if isinstance(item, Record):
            reader.record(at, item.lane, item.event)
        elif isinstance(item, Await):
            reader.wait(at, item.lane, item.event)
        elif isinstance(item, HostAwait):
            reader.host_wait(at, item.event)
    for lag_class in sorted({lag for _, _, lag in reader.edges}):
        pairs = np.array(sorted({(src, dst) for src, dst, lag in reader.edges if lag == lag_class}), dtype=np.int64)
        edges.add(pairs[:, 0], pairs[:, 1], Relation.WAITS, lag_class)


def _by_lane(program: Sequence[Placed], kind: np.ndarray) -> dict[Lane, np.ndarray]:
    result: dict[Lane, list[int]] = defaultdict(list)
    for place in np.flatnonzero(np.isin(kind, LAUNCHED)).tolist():
        lane = lane_of(program[place].item)
        assert lane is not None, "launched items have a lane"
        result[lane].append(place)
    return {lane: np.array(places, dtype=np.int64) for lane, places in result.items()}
