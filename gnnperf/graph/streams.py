"""What makes one stream wait for another.

    host     |A| |record| |wait| |B|            event recorded after A, waited for by B's stream
    stream 0   |---- A ----|
    stream 1                |--- B ---|         A -> B

Traces with cuda_sync events name both streams and the record: the first work launched on the waiting stream
after the wait awaits the last one launched on the other stream before the record. Other traces do not name the event.
There the work launched next after a wait, on whatever stream, is taken to wait for the last work launched on every
other stream before that wait (the last before the record, if a record directly precedes it); an edge whose source ends
after its target starts is refuted by the recording; if that happens to a pair of works in any step, it is made in none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import EventKind
from gnnperf.graph.device import Works
from gnnperf.graph.event_columns import CallClass, RankEvents
from gnnperf.graph.waits import LaunchOrder

_NEAR_NS = 25_000
_GAP_NS = 30_000


@dataclass(frozen=True)
class EventWaits:
    """Waits between streams; both [2, num_edges] (work, work).

    Attributes:
        named: the trace names the streams and the record.
        ordered: from program order, where it does not.
    """

    named: np.ndarray
    ordered: np.ndarray

    @property
    def all(self) -> np.ndarray:
        """[2, num_edges] of either kind."""
        return np.concatenate([self.named, self.ordered], axis=1)


def event_waits(events: RankEvents, works: Works) -> EventWaits:
    """All waits between streams."""
    wait = np.flatnonzero(events.calls == CallClass.WAIT_EVENT)
    nothing = np.zeros((2, 0), dtype=np.int64)
    if not len(wait) or not len(works):
        return EventWaits(nothing, nothing)
    launches = LaunchOrder(events, works)
    if not (events.kind == EventKind.SYNC).any():
        return EventWaits(nothing, _ordered_waits(events, works, launches, wait))
    # A wait that is not named is one of a stream without work, or for an event of before the recording.
    sync = _naming_events(events, wait)
    return EventWaits(_named_waits(events, works, launches, wait[sync >= 0], sync[sync >= 0]), nothing)


def _naming_events(events: RankEvents, wait: np.ndarray) -> np.ndarray:
    """[num_waits] the cuda_sync event of each wait call, which has its correlation; -1 none."""
    known = (events.kind == EventKind.SYNC) & (events.column("waiting_stream") >= 0) & (events.column("stream") >= 0)
    sync = np.flatnonzero(known & (events.column("correlation") >= 0))
    event_of = dict(zip(events.column("correlation")[sync].tolist(), sync.tolist(), strict=True))
    return np.array([event_of.get(c, -1) for c in events.column("correlation")[wait].tolist()], dtype=np.int64)


def _named_waits(
    events: RankEvents, works: Works, launches: LaunchOrder, wait: np.ndarray, sync: np.ndarray
) -> np.ndarray:
    """[2, num_edges] (work, work): what the cuda_sync event of each wait call names, as far as it is in the window."""
    device, stream = events.column("device"), events.column("stream")
    lanes = zip(device[works.event].tolist(), stream[works.event].tolist(), strict=True)
    ordinal = dict(zip(lanes, works.stream.tolist(), strict=True))
    moment = _named_record(events, wait, sync)
    pairs = []
    for i, row in enumerate(sync.tolist()):
        awaited = ordinal.get((int(device[row]), int(stream[row])), -1)
        waiting = ordinal.get((int(device[row]), int(events.column("waiting_stream")[row])), -1)
        source = launches.last_on(awaited, moment[i])
        target = launches.next_on(waiting, events.end_ns[wait[i]])
        if source >= 0 and target >= 0 and works.end_ns[source] <= works.begin_ns[target]:
            pairs.append((source, target))
    return np.unique(np.array(pairs, dtype=np.int64).reshape(-1, 2), axis=0).T


def _named_record(events: RankEvents, wait: np.ndarray, sync: np.ndarray) -> np.ndarray:
    """[num_waits] ns: when the awaited event was recorded; before everything if that was before the window."""
    record = np.flatnonzero((events.calls == CallClass.RECORD_EVENT) & (events.column("correlation") >= 0))
    at = dict(zip(events.column("correlation")[record].tolist(), events.start_ns[record].tolist(), strict=True))
    named = events.column("wait_event")[sync]
    first = np.iinfo(np.int64).min + 1  # after works launched before the window
    results = np.array([at.get(c, first) for c in named.tolist()], dtype=np.int64)
    # Not named, or named wrongly (the event was recorded again before the profiler looked): what precedes the wait.
    return np.where((named >= 0) & (results <= events.start_ns[wait]), results, _recorded_at(events, wait))


def _ordered_waits(events: RankEvents, works: Works, launches: LaunchOrder, wait: np.ndarray) -> np.ndarray:
    """[2, num_edges] (work, work) between streams, from program order."""
    target = _next_launch(events, launches, wait)  # [num_waits] work, -1 none
    wait, target = wait[target >= 0], target[target >= 0]
    moment = _recorded_at(events, wait)
    candidates = launches.last_per_stream(moment)  # [num_streams, num_waits]
    other = (candidates >= 0) & (works.stream[candidates] != works.stream[target][None, :])
    row, column = np.nonzero(other)
    source, target = candidates[row, column], target[column]
    refuted = works.end_ns[source] > works.begin_ns[target]
    pair = _signatures(events, works)[np.stack([source, target])]  # [2, num_candidates]
    pair_key = pair[0] * np.uint64(1_000_003) ^ pair[1]
    possible = ~np.isin(pair_key, pair_key[refuted])  # a dependency holds every time, or it is none
    return np.unique(np.stack([source[possible], target[possible]]), axis=1)


def _signatures(events: RankEvents, works: Works) -> np.ndarray:
    """[num_works] uint64 hash of what a work is: kernel, op, stream; the same in every step."""
    frame = events.table.events
    parts = [
        frame["name"].cat.codes.to_numpy()[works.event],
        np.where(works.op >= 0, frame["name"].cat.codes.to_numpy()[works.op], -1),
        works.stream,
    ]
    key = np.zeros(len(works), dtype=np.uint64)
    for part in parts:
        key = key * np.uint64(1_000_003) ^ part.astype(np.int64).view(np.uint64)
    return key


def _next_launch(events: RankEvents, launches: LaunchOrder, wait: np.ndarray) -> np.ndarray:
    """[num_waits] the work that the waiting thread launches next."""
    result = np.full(len(wait), -1, dtype=np.int64)
    for thread in np.unique(events.thread[wait]):
        at, rows = np.flatnonzero(launches.thread == thread), np.flatnonzero(events.thread[wait] == thread)
        slot = np.searchsorted(launches.launched_ns[at], events.end_ns[wait[rows]], side="left")
        results = slot < len(at)
        result[rows[results]] = launches.work[at[slot[results]]]
    return result


def _recorded_at(events: RankEvents, wait: np.ndarray) -> np.ndarray:
    """[num_waits] when the awaited event was recorded: at the record just before in the thread, else at the wait."""
    marks = np.flatnonzero(np.isin(events.calls, [int(CallClass.RECORD_EVENT), int(CallClass.WAIT_EVENT)]))
    marks = marks[np.lexsort((events.start_ns[marks], events.thread[marks]))]
    before = np.full(len(events.calls), -1, dtype=np.int64)
    before[marks[1:]] = np.where(events.thread[marks[1:]] == events.thread[marks[:-1]], marks[:-1], -1)
    record = before[wait]
    is_record = (record >= 0) & (events.calls[record] == CallClass.RECORD_EVENT)
    return np.where(is_record, events.start_ns[record], events.start_ns[wait])


def timed_stream_waits(works: Works, explained_ns: np.ndarray) -> np.ndarray:
    """[2, num_edges] (work, work): for gaps nothing explains, work of another stream ending within 25 us before.

    `explained_ns` [num_works] is the latest moment that other edges give for each work. Replay only.
    """
    late = np.flatnonzero(works.begin_ns - explained_ns > _GAP_NS)
    order = np.argsort(works.end_ns, kind="stable")
    ends = works.end_ns[order]
    pairs = []
    for work in late:
        slot = int(np.searchsorted(ends, works.begin_ns[work], side="right")) - 1
        while slot >= 0 and works.begin_ns[work] - ends[slot] <= _NEAR_NS:
            source = order[slot]
            if works.stream[source] != works.stream[work]:
                pairs.append((int(source), int(work)))
                break
            slot -= 1
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
