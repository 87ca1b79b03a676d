"""What a blocking call waits for, and what makes a stream wait.

    host     | launch A | launch B | sync ······waits·······|          A, B on one stream
    device        |--- A ---|-------- B --------|
             B -> sync. The sync's own latency is what is left after B has ended.

No public trace names the stream or event of a wait; those recorded with cuda_sync events name the stream. Edges come
from program order, and an edge that the recorded
order of events refutes (the source ends after the call has returned) is not made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import EventKind
from gnnperf.graph.device import Works, stream_lanes
from gnnperf.graph.event_columns import SYNCHRONIZING, CallClass, RankEvents
from gnnperf.graph.host import segmenting_calls

LAUNCH_QUEUE_DEPTH = 1022  # launches in flight before the next launch blocks
_TIMING_WINDOW_NS = 25_000
_LONG_CALL_NS = 30_000
_TIMING_CANDIDATES = 4


@dataclass(frozen=True)
class HostWaits:
    """What host calls wait for; all [2, num_edges] (work, call event).

    Attributes:
        before_call: work launched earlier: awaited by synchronizing calls, drained streams, full launch queues.
        own_copy: the copy that the call itself started and waits for.
        guessed: inferred from time distances; for calls nothing else explains.
    """

    before_call: np.ndarray
    own_copy: np.ndarray
    guessed: np.ndarray


def host_waits(events: RankEvents, works: Works) -> HostWaits:
    """All waits of host calls for device work."""
    calls = segmenting_calls(events)
    copies = blocking_copies(events, works)
    ordered = [sync_waits(events, works, calls), drain_waits(events, works, copies), queue_waits(events, works)]
    before, own = np.unique(np.concatenate(ordered, axis=1), axis=1), copy_waits(events, works, copies)
    known = np.concatenate([before, own], axis=1)
    inside = works.end_ns[known[0]] > events.start_ns[known[1]]
    return HostWaits(before, own, timed_waits(events, works, calls, known[1][inside]))


class LaunchOrder:
    """Works in the order of their launch calls, to ask what was launched before a moment.

    Attributes:
        work: [num_launched] work numbers by launch time.
        launched_ns: [num_launched] begin of the launch call.
    """

    def __init__(self, events: RankEvents, works: Works) -> None:
        launched = np.flatnonzero((works.call >= 0) | works.before_window)
        call = works.call[launched]
        # Launched before the window: earlier than every call in it, in order of execution.
        call_ns = np.where(call >= 0, events.start_ns[call], np.iinfo(np.int64).min)
        order = np.lexsort((works.begin_ns[launched], call_ns))
        self.work, self.launched_ns = launched[order], call_ns[order]
        self.thread = np.where(call[order] >= 0, events.thread[call[order]], -1)
        self.stream = works.stream[self.work]

    def last_per_stream(self, moments_ns: np.ndarray) -> np.ndarray:
        """[num_streams, num_moments] last work launched on each stream before each moment; -1 none."""
        streams = np.unique(self.stream)
        result = np.full((len(streams), len(moments_ns)), -1, dtype=np.int64)
        for row, stream in enumerate(streams):
            at = np.flatnonzero(self.stream == stream)
            count = np.searchsorted(self.launched_ns[at], moments_ns, side="left")
            result[row, count > 0] = self.work[at[count[count > 0] - 1]]
        return result

    def last_on(self, stream: int, moment_ns: int) -> int:
        """Last work launched on one stream before a moment; -1 none."""
        at = np.flatnonzero(self.stream == stream)
        count = int(np.searchsorted(self.launched_ns[at], moment_ns, side="left"))
        return int(self.work[at[count - 1]]) if count else -1

    def next_on(self, stream: int, moment_ns: int) -> int:
        """First work launched on one stream at a moment or after it; -1 none."""
        at = np.flatnonzero(self.stream == stream)
        count = int(np.searchsorted(self.launched_ns[at], moment_ns, side="left"))
        return int(self.work[at[count]]) if count < len(at) else -1

    def last_stream_of_thread(self, thread: np.ndarray, moments_ns: np.ndarray) -> np.ndarray:
        """[n] work that the same thread launched last before each moment; -1 none."""
        result = np.full(len(moments_ns), -1, dtype=np.int64)
        for t in np.unique(thread):
            at, rows = np.flatnonzero(self.thread == t), np.flatnonzero(thread == t)
            count = np.searchsorted(self.launched_ns[at], moments_ns[rows], side="left")
            result[rows[count > 0]] = self.work[at[count[count > 0] - 1]]
        return result


def sync_waits(events: RankEvents, works: Works, calls: np.ndarray) -> np.ndarray:
    """[2, num_edges] (work, call event): what each blocking call among `calls` waits for, by program order."""
    blocking = calls[np.isin(events.calls[calls], [int(c) for c in SYNCHRONIZING])]
    if not len(blocking) or not len(works):
        return np.zeros((2, 0), dtype=np.int64)
    launches = LaunchOrder(events, works)
    begin, end = events.start_ns[blocking], events.end_ns[blocking]
    candidates = launches.last_per_stream(begin)  # [num_streams, num_blocking]
    possible = (candidates >= 0) & (works.end_ns[candidates] <= end[None, :])
    named = _named_streams(events, works, blocking)  # [num_blocking], -1 unknown
    stream_of = np.where(candidates >= 0, works.stream[candidates], -1)
    own = launches.last_stream_of_thread(events.thread[blocking], begin)
    own_stream = np.where(own >= 0, works.stream[own], -1)
    narrow = np.isin(events.calls[blocking], [int(CallClass.SYNC_STREAM), int(CallClass.SYNC_EVENT)])
    own_fits = (possible & (stream_of == own_stream[None, :])).any(axis=0)
    wanted = np.where(named >= 0, named, np.where(narrow & own_fits, own_stream, -1))
    chosen = possible & ((wanted[None, :] < 0) | (stream_of == wanted[None, :]))
    row, column = np.nonzero(chosen)
    return np.stack([candidates[row, column], blocking[column]])


def _named_streams(events: RankEvents, works: Works, calls: np.ndarray) -> np.ndarray:
    """[n] stream ordinal that a cuda_sync event names for each call (joined by correlation); -1 unknown."""
    result = np.full(len(calls), -1, dtype=np.int64)
    sync = np.flatnonzero(events.kind == EventKind.SYNC)
    if not len(sync):
        return result
    lane, stream = stream_lanes(events), events.column("stream")
    ordinal = dict(zip(lane[works.event].tolist(), works.stream.tolist(), strict=True))
    sync = sync[stream[sync] >= 0]
    by_correlation = dict(zip(events.column("correlation")[sync].tolist(), lane[sync].tolist(), strict=True))
    correlation = events.column("correlation")[calls]
    for i in np.flatnonzero(correlation >= 0):
        named = by_correlation.get(int(correlation[i]))
        result[i] = -1 if named is None else ordinal.get(named, -1)
    return np.where(events.calls[calls] == CallClass.SYNC_DEVICE, -1, result)


def blocking_copies(events: RankEvents, works: Works) -> np.ndarray:
    """[num_copies] works that their own call waits for: synchronous copies, and copies of pageable memory.

    host     | T4: drain the stream | T4: copy |          split where the copy begins
    device   |--- earlier work ----||-- copy --|
    """
    pageable = np.array(["Pageable" in name for name in events.name[works.event].tolist()], dtype=bool)
    waited = pageable | (events.calls[works.call] == CallClass.COPY_AND_WAIT)
    return np.flatnonzero(waited & works.is_copy & (works.call >= 0))


def drain_waits(events: RankEvents, works: Works, copies: np.ndarray) -> np.ndarray:
    """[2, num_edges] (work, call event): what the stream still had to do before each blocking copy."""
    call = works.call[copies]
    before = LaunchOrder(events, works).last_per_stream(events.start_ns[call])  # [num_streams, num_copies]
    same = (before >= 0) & (works.stream[before] == works.stream[copies][None, :])
    row, column = np.nonzero(same & (works.end_ns[before] <= works.begin_ns[copies][None, :]))
    inside = works.end_ns[before[row, column]] <= events.end_ns[call[column]]
    return np.stack([before[row, column], call[column]])[:, inside]


def copy_waits(events: RankEvents, works: Works, copies: np.ndarray) -> np.ndarray:
    """[2, num_edges] (work, call event): blocking copies that end inside the call that started them."""
    done = copies[works.end_ns[copies] <= events.end_ns[works.call[copies]]]
    return np.stack([done, works.call[done]])


def queue_waits(events: RankEvents, works: Works) -> np.ndarray:
    """[2, num_edges] (work, call event): launch i of a stream waits until its work i - LAUNCH_QUEUE_DEPTH has ended.

    Every stream has a queue of its own. Recordings that fill one say 1022, to the launch; those of AMD devices hold
    more, and refute every such edge.
    """
    launched = LaunchOrder(events, works)
    results = [np.zeros((2, 0), dtype=np.int64)]
    for stream in np.unique(launched.stream):
        queue = _last_of_each_call(works, launched.work[launched.stream == stream])
        earlier, later = queue[:-LAUNCH_QUEUE_DEPTH], queue[LAUNCH_QUEUE_DEPTH:]
        in_window = works.call[later] >= 0
        earlier, call = earlier[in_window], works.call[later[in_window]]
        possible = works.end_ns[earlier] <= events.end_ns[call]
        results.append(np.stack([earlier[possible], call[possible]]))
    return np.concatenate(results, axis=1)


def _last_of_each_call(works: Works, queue: np.ndarray) -> np.ndarray:
    """The works of a queue without those that a later one of the same call follows: a graph takes one place."""
    call = works.call[queue]
    followed = (call >= 0) & (call == np.append(call[1:], -1))
    results: np.ndarray = queue[~followed]
    return results


def timed_waits(events: RankEvents, works: Works, calls: np.ndarray, explained: np.ndarray) -> np.ndarray:
    """[2, num_edges] (work, call event): for long calls nothing else explains, the last work to end inside them.

    Only if it ends within 25 us of the call's end: an inference from time distance, for replay only.
    """
    duration = events.end_ns[calls] - events.start_ns[calls]
    left = np.setdiff1d(calls[duration > _LONG_CALL_NS], explained)
    if not len(works) or not len(left):
        return np.zeros((2, 0), dtype=np.int64)
    order = np.argsort(works.end_ns, kind="stable")
    slot = np.searchsorted(works.end_ns[order], events.end_ns[left], side="right") - 1
    launched = np.where(works.call >= 0, events.start_ns[works.call], np.iinfo(np.int64).min)
    results = np.full(len(left), -1, dtype=np.int64)
    for back in range(_TIMING_CANDIDATES):  # the last to end may be the call's own work, which it cannot wait for
        work = order[np.maximum(slot - back, 0)]
        end = works.end_ns[work]
        near = (slot >= back) & (end > events.start_ns[left]) & (events.end_ns[left] - end <= _TIMING_WINDOW_NS)
        fits = near & (launched[work] < events.start_ns[left]) & (results < 0)
        results[fits] = work[fits]
    return np.stack([results[results >= 0], left[results >= 0]])
