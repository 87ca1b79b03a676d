"""What makes one stream wait for another.

    host     |A| |record| |wait| |B|            event recorded after A, waited for by B's stream
    stream 0   |---- A ----|
    stream 1                |--- B ---|         A -> B

Traces do not name the event. The work launched next after a wait, on whatever stream, is taken to wait for the last
work launched on every other stream before that wait (the last before the record, if a record directly precedes it);
an edge whose source ends after its target starts is refuted by the recording; if that happens to a pair of works in any
step, it is made in none.
"""

from __future__ import annotations

import numpy as np

from gnnperf.graph.calls import CallClass
from gnnperf.graph.device import Works
from gnnperf.graph.rank_events import RankEvents
from gnnperf.graph.waits import LaunchOrder

_NEAR_NS = 25_000
_GAP_NS = 30_000


def event_waits(events: RankEvents, works: Works) -> np.ndarray:
    """[2, num_edges] (work, work) between streams, from program order."""
    wait = np.flatnonzero(events.calls == CallClass.WAIT_EVENT)
    if not len(wait) or not len(works):
        return np.zeros((2, 0), dtype=np.int64)
    launches = LaunchOrder(events, works)
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
        found = slot < len(at)
        result[rows[found]] = launches.work[at[slot[found]]]
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
