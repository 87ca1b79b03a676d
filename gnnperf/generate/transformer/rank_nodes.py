"""One rank of a plan: its nodes, and the edges among them.

host     |T1|T2|T4|T3|T1|T2|T4|T3|            |wait|T1 ...
               `launches    `launches            ^
compute        |-- kernel --|          ,->|-- kernel --|
                            `->       |          |
tensor                       arrive ... exit     `waits
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gnnperf.core import Relation
from gnnperf.generate.transformer.items import Await, Copy, HostAwait, HostWait, Lane, Op, Placed, Record, Transfer
from gnnperf.generate.transformer.plan import Parallelism
from gnnperf.generate.transformer.rows import FIRST_WORK, LAUNCH_AT, ItemRows, item_rows, lane_of
from gnnperf.graph import EdgeList, consecutive

# What waits for events: edges between streams that the order of launches only does not give.
#
# compute  |- k0 -| Record e        |- k2 -|
#                         \            ^ Await f
# other            Await e `->|- copy -| Record f
#
# An event is the last work that its lane had been given, and what the lane itself was instructed to wait for since.


NONE = -1
# Kinds of items: kernels of the compute stream; transfers that the compute stream waits for, or not; device work that
# waits for events only; blocking waits for all of it; records and waits of events; other work of the host.
KERNEL, AWAITED, UNAWAITED, ASIDE, WAIT, EVENT, HOST = range(7)
LAUNCHED = (KERNEL, AWAITED, UNAWAITED, ASIDE)
Result = list[tuple[int, int]]  # (position in the program, node)


@dataclass
class _Reader:
    """Goes through a program's events in order."""

    # program, begin, kind: of [num_items]; see event_waits
    program: Sequence[Placed]
    begin: np.ndarray
    kind: np.ndarray
    by_lane: dict[Lane, np.ndarray]  # lane -> positions of the items with work on it
    recorded: dict[str, tuple[int, ...]] = field(default_factory=dict)  # event -> nodes whose ends it is
    # lane -> what it was instructed to wait for, and where
    pending: dict[Lane, Result] = field(default_factory=lambda: defaultdict(list))
    edges: list[tuple[int, int, str]] = field(default_factory=list)  # (src, dst, lag class)

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
    """Add the waits of a program's events; [num_items] first node of each item, and KERNEL to HOST."""
    places = np.flatnonzero(kind == EVENT)
    if not len(places):
        return
    by_lane: dict[Lane, list[int]] = defaultdict(list)
    for place in np.flatnonzero(np.isin(kind, LAUNCHED)).tolist():
        lane = lane_of(program[place].item)
        assert lane is not None, "launched items have a lane"
        by_lane[lane].append(place)
    reader = _Reader(program, begin, kind, {lane: np.array(own, dtype=np.int64) for lane, own in by_lane.items()})
    for at in places.tolist():
        item = program[at].item
        if isinstance(item, Record):
            reader.record(at, item.lane, item.event)
        elif isinstance(item, Await):
            reader.wait(at, item.lane, item.event)
        elif isinstance(item, HostAwait):
            reader.edges += [(node, int(begin[at]), "sync") for node in reader.recorded.get(item.event, ())]
    for lag_class in sorted({lag for _, _, lag in reader.edges}):
        pairs = np.array(sorted({(src, dst) for src, dst, lag in reader.edges if lag == lag_class}), dtype=np.int64)
        edges.add(pairs[:, 0], pairs[:, 1], Relation.WAITS, lag_class)


@dataclass(frozen=True)
class Part:
    """One rank's part in a transfer: what it is, and the node where it arrives; it leaves at the next node."""

    transfer: Transfer
    tag: str
    arrive: int


@dataclass(frozen=True)
class RankNodes:
    """A rank's nodes, numbered from 0."""

    table: pd.DataFrame  # [num_nodes] rows; `rank` is still to be set
    edges: EdgeList  # among them
    parts: tuple[Part, ...]  # of transfers, in order


def rank_nodes(program: Sequence[Placed], ways: Parallelism) -> RankNodes:
    """The nodes of a program and what they wait for on their own rank."""
    (own,) = nodes_of_ranks([program], ways)
    return own


def nodes_of_ranks(programs: Sequence[Sequence[Placed]], ways: Parallelism) -> Iterator[RankNodes]:
    """The same of several programs, whose rows are made once for each item that they share."""
    numbers: dict[int, int] = {}  # by identity: a program repeats the same few items
    index = [np.array([numbers.setdefault(id(p.item), len(numbers)) for p in program]) for program in programs]
    by_number = {numbers[id(p.item)]: p.item for program in programs for p in program}
    distinct = [by_number[n] for n in range(len(numbers))]
    rows = item_rows(distinct, ways)
    kinds = np.array([_kind(item) for item in distinct])
    for program, own in zip(programs, index, strict=True):
        yield _nodes(program, rows, own, kinds[own])


def _nodes(program: Sequence[Placed], rows: ItemRows, index: np.ndarray, kind: np.ndarray) -> RankNodes:
    """Of one program, from the rows of distinct items and the number [num_items] and kind [num_items] of each."""
    width = np.diff(rows.first)[index]  # [num_items]
    begin = np.cumsum(width) - width  # [num_items] first node of each item
    row = np.repeat(rows.first[index] - begin, width) + np.arange(int(width.sum()))  # [num_nodes]
    table = rows.table.take(row).reset_index(drop=True)
    parts = tuple(Part(p.item, p.tag, int(b) + FIRST_WORK) for p, b in zip(program, begin, strict=True)
                  if isinstance(p.item, Transfer))  # fmt: skip
    edges = _edges(table, begin, kind)
    event_waits(edges, program, begin, kind)
    return RankNodes(table, edges, parts)


def _kind(item: object) -> int:
    if isinstance(item, Op):
        return KERNEL if item.lane is Lane.COMPUTE else ASIDE
    if isinstance(item, Transfer):
        return (AWAITED if item.awaited else UNAWAITED) if item.follows_compute else ASIDE
    if isinstance(item, Copy):
        return ASIDE
    if isinstance(item, Record | Await | HostAwait):
        return EVENT
    return WAIT if isinstance(item, HostWait) else HOST


def _edges(table: pd.DataFrame, begin: np.ndarray, kind: np.ndarray) -> EdgeList:
    """Order of thread and streams, launches, and waits between streams and of the host."""
    edges = EdgeList()
    thread, stream = table["thread"].to_numpy(), table["stream"].to_numpy()
    edges.add(*consecutive(thread), Relation.FOLLOWS)
    src, dst = consecutive(stream)
    between = (table["segment"] != "exit").to_numpy()[dst]  # an exit is released by its transfer
    edges.add(src[between], dst[between], Relation.FOLLOWS, "stream")
    launching = np.isin(kind, LAUNCHED)
    edges.add(begin[launching] + LAUNCH_AT, begin[launching] + FIRST_WORK, Relation.LAUNCHES, "launch")
    work = begin + FIRST_WORK  # [num_items] kernel, or arrival
    kernels, exits = np.where(kind == KERNEL, work, NONE), np.where(kind == AWAITED, work + 1, NONE)
    transfers = np.where(np.isin(kind, (AWAITED, UNAWAITED)), work, NONE)
    waits = np.where(kind == WAIT, begin, NONE)
    _before(edges, kernels, transfers, "event")
    _before(edges, kernels, waits, "sync")
    _after(edges, exits, kernels, "event")  # what holds the compute stream holds all that is issued after it
    _after(edges, exits, transfers, "event")
    _after(edges, exits, waits, "sync")
    return edges


def _before(edges: EdgeList, src: np.ndarray, dst: np.ndarray, lag_class: str) -> None:
    """Every `dst` waits for the last `src` before it; both are [num_items] nodes, NONE where an item is none."""
    latest = np.r_[NONE, np.maximum.accumulate(src)[:-1]]
    known = (dst != NONE) & (latest != NONE)
    edges.add(latest[known], dst[known], Relation.WAITS, lag_class)


def _after(edges: EdgeList, src: np.ndarray, dst: np.ndarray, lag_class: str) -> None:
    """The first `dst` after each `src` waits for it."""
    never = np.iinfo(np.int64).max
    result = np.where(dst == NONE, never, dst)
    following = np.r_[np.minimum.accumulate(result[::-1])[::-1][1:], never]
    known = (src != NONE) & (following != never)
    edges.add(src[known], following[known], Relation.WAITS, lag_class)
