"""What a blocking call waits for, and what makes a stream wait.

    host     | launch A | launch B | sync ······waits·······|          A, B on one stream
    device        |--- A ---|-------- B --------|
             B -> sync. The sync's own latency is what is left after B has ended.

No public trace names the stream or event of a wait; those recorded with cuda_sync events name the stream. Edges come
from program order. An edge that the recorded order of events refutes is not made: the source ends after the call has
returned. For calls of a millisecond or more, the source may end later by as much as device clocks drift.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from gnnperf.core import EventKind, Evidence, schema
from gnnperf.graph.event_columns import BACKWARD, OPTIMIZER, SYNCHRONIZING, CallClass, RankEvents, by_category
from gnnperf.graph.tables import unique_pairs
from gnnperf.graph.works import Works, stream_lanes

LAUNCH_QUEUE_DEPTH = 1022  # launches in flight before the next launch blocks
_TIMING_WINDOW_NS = 25_000
_LONG_CALL_NS = 30_000
_TIMING_CANDIDATES = 4
_CLOCK_DRIFT_NS = 25_000  # device clocks drift that far against their host within a public recording of 2 s
_MANY_DRIFTS = 40  # a call of that many is so near to its work's end by chance once in as many times


@dataclass(frozen=True)
class HostWaits:
    """What host calls wait for; all [2, num_edges] (work, call event)."""

    # work launched earlier: awaited by synchronizing calls, drained streams, full launch queues
    before_call: np.ndarray
    own_copy: np.ndarray  # the copy that the call itself started and waits for
    guessed: np.ndarray  # inferred from time distances; for calls nothing else explains


def host_waits(events: RankEvents, works: Works) -> HostWaits:
    """All waits of host calls for device work."""
    calls = events.segmenting_calls
    copies = blocking_copies(events, works)
    ordered = [sync_waits(events, works, calls), drain_waits(events, works, copies), queue_waits(events, works)]
    before = unique_pairs(np.concatenate(ordered, axis=1))
    done = copies[works.end_ns[copies] <= events.end_ns[works.call[copies]]]  # inside the call that started them
    own = np.stack([done, works.call[done]])
    known = np.concatenate([before, own], axis=1)
    inside = works.end_ns[known[0]] > events.start_ns[known[1]]
    return HostWaits(before, own, timed_waits(events, works, calls, known[1][inside]))


class LaunchOrder:
    """Works in the order of their launch calls, to ask what was launched before a moment.

    [num_launched] `work` numbers by launch time, and `launched_ns`, begins of the launch calls.
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

    def around(self, stream: int, moment_ns: int) -> tuple[int, int]:
        """(last, next) work launched on one stream before a moment, and at it or after it; -1 none."""
        at = np.flatnonzero(self.stream == stream)
        count = int(np.searchsorted(self.launched_ns[at], moment_ns, side="left"))
        return int(self.work[at[count - 1]]) if count else -1, int(self.work[at[count]]) if count < len(at) else -1

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
    returned = end + np.where(end - begin > _MANY_DRIFTS * _CLOCK_DRIFT_NS, _CLOCK_DRIFT_NS, 0)  # [num_blocking]
    possible = (candidates >= 0) & (works.end_ns[candidates] <= returned[None, :])
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
    sync = np.flatnonzero(events.is_kind(EventKind.SYNC))
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
    pageable = by_category(events.table.events["name"], lambda name: "Pageable" in name, bool)[works.event]
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


def queue_waits(events: RankEvents, works: Works) -> np.ndarray:
    """[2, num_edges] (work, call event): launch i of a stream waits until its work i - LAUNCH_QUEUE_DEPTH has ended.

    Every stream has a queue of its own, in which a graph takes one place. Recordings that fill one say 1022, to the
    launch; those of AMD devices hold more, and refute every such edge.
    """
    launched = LaunchOrder(events, works)
    results = [np.zeros((2, 0), dtype=np.int64)]
    for stream in np.unique(launched.stream):
        queue = launched.work[launched.stream == stream]
        call = works.call[queue]
        queue = queue[(call < 0) | (call != np.append(call[1:], -1))]  # the last work of each call
        earlier, later = queue[:-LAUNCH_QUEUE_DEPTH], queue[LAUNCH_QUEUE_DEPTH:]
        in_window = works.call[later] >= 0
        earlier, call = earlier[in_window], works.call[later[in_window]]
        possible = works.end_ns[earlier] <= events.end_ns[call]
        results.append(np.stack([earlier[possible], call[possible]]))
    return np.concatenate(results, axis=1)


# DDP measures its last iteration when the next forward begins: it waits for its timers' events, which profilers do not
# record, then asks for the time between two of them, which they do.
#
# host     |DDP.forward: ..waits.. |elapsed| |elapsed|            backward: events of the iteration before
# device   |--- backward ---|- optimizer -|
#
# Which event is awaited is not stated. Of the moments at which a program may have recorded it (the call, the end of the
# last backward, its begin), the latest that the recordings bear out is taken, for all calls of one place of a program.

_BORNE_OUT = 0.7  # share of recordings; device and host clocks of a rank may be apart by more than a short kernel takes


def elapsed_waits(ranks: Sequence[tuple[RankEvents, Works]]) -> list[np.ndarray]:
    """Per rank [2, num_edges] (work, call event): what had ended before the time between two events was requested."""
    candidates = [_candidates(events, works) for events, works in ranks]
    rows = pd.concat(candidates, ignore_index=True)
    if not len(rows):
        return [np.zeros((2, 0), dtype=np.int64) for _ in ranks]
    rows["borne_out"] = rows.groupby(["place", "stream", "moment"])["held"].transform("mean") >= _BORNE_OUT
    chosen = rows[rows["borne_out"]].groupby(["place", "stream"])["moment"].transform("min")
    taken = rows["borne_out"] & (rows["moment"] == chosen.reindex(rows.index))
    ends = np.cumsum([0, *(len(one) for one in candidates)]).tolist()
    parts = [rows[first:end][taken[first:end]] for first, end in pairwise(ends)]
    return [part[["work", "call"]].to_numpy(np.int64).T.reshape(2, -1) for part in parts]


def _candidates(events: RankEvents, works: Works) -> pd.DataFrame:
    """Works that a call may have waited for: one row per call, moment (0 the latest) and stream."""
    calls = events.segmenting_calls
    calls = calls[events.calls[calls] == CallClass.ELAPSED_TIME] if len(works) else calls[:0]
    launches, place = LaunchOrder(events, works), _places(events, calls)
    parts = [pd.DataFrame({"place": [], "stream": [], "moment": [], "work": [], "call": [], "held": []})]
    for moment, moments_ns in enumerate(_recorded_before(events, works, calls) if len(calls) else []):
        work = launches.last_per_stream(moments_ns)  # [num_streams, num_calls]
        row, column = np.nonzero(work >= 0)
        earlier = work[row, column]
        parts.append(pd.DataFrame({
            "place": place[column], "stream": events.column("stream")[works.event[earlier]], "moment": moment,
            "work": earlier, "call": calls[column], "held": works.end_ns[earlier] <= events.end_ns[calls[column]],
        }))  # fmt: skip
    return pd.concat(parts[1:], ignore_index=True) if len(parts) > 1 else parts[0]


def _recorded_before(events: RankEvents, works: Works, calls: np.ndarray) -> list[np.ndarray]:
    """Three moments [num_calls], latest first: the call, the end and the begin of the last backward before it."""
    launched = np.flatnonzero((works.call >= 0) & (works.op >= 0))
    launched = launched[np.argsort(events.start_ns[works.call[launched]], kind="stable")]
    moment, phase = events.start_ns[works.call[launched]], events.phase[works.op[launched]]
    backward = phase == BACKWARD
    at = np.arange(len(launched))
    last = np.maximum.accumulate(np.where(backward, at, -1))  # [num_launched] latest backward work so far
    opens = backward & np.r_[True, ~backward[:-1] & (phase[:-1] == OPTIMIZER)][: len(at)]
    first = np.maximum.accumulate(np.where(opens | (backward & (np.cumsum(backward) == 1)), at, -1))
    count = np.searchsorted(moment, events.start_ns[calls])  # launched before each call
    never = np.iinfo(np.int64).min  # the backward lies before the window: nothing is known to precede
    end, begin = (np.r_[-1, rows][count] for rows in (last, first))
    return [
        events.start_ns[calls],
        np.where(end >= 0, moment[end] + 1, never),
        np.where(begin >= 0, moment[begin], never),
    ]


def _places(events: RankEvents, calls: np.ndarray) -> np.ndarray:
    """[num_calls] str: the range around each call, and how many such calls came before in it."""
    counts: dict[int, int] = {}
    places = []
    for around in events.parent[calls].tolist():  # calls are in order of time
        counts[around] = counts.get(around, 0) + 1
        places.append(f"{events.name[around]} {counts[around]}" if around >= 0 else "")
    return np.array(places, dtype=object)


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


# What makes one stream wait for another.
#
#     host     |A| |record| |wait| |B|            event recorded after A, waited for by B's stream
#     stream 0   |---- A ----|
#     stream 1                |--- B ---|         A -> B
#
# Traces with cuda_sync events name both streams and the record: the first work launched on the waiting stream
# after the wait awaits the last one launched on the other stream before the record. Other traces do not name the event.
# There the work launched next after a wait, on whatever stream, is taken to wait for the last work launched on every
# other stream before that wait (the last before the record, if a record directly precedes it). The recording refutes an
# edge whose source ends after its target starts; a pair of works that is refuted in any step gets an edge in none.

_NEAR_NS = 25_000
_GAP_NS = 30_000


def event_waits(events: RankEvents, works: Works) -> tuple[np.ndarray, Evidence]:
    """[2, num_edges] (work, work) all waits between streams, and whether the trace names them or order shows them."""
    wait = np.flatnonzero(events.calls == CallClass.WAIT_EVENT)
    if not len(wait) or not len(works):
        return np.zeros((2, 0), dtype=np.int64), Evidence.ORDER
    launches = LaunchOrder(events, works)
    is_sync = events.is_kind(EventKind.SYNC)
    if not is_sync.any():
        return _ordered_waits(events, works, launches, wait), Evidence.ORDER
    # A wait that is not named is one of a stream without work, or for an event of before the recording.
    known = is_sync & (events.column("waiting_stream") >= 0) & (events.column("stream") >= 0)
    syncs = np.flatnonzero(known & (events.column("correlation") >= 0))
    event_of = dict(zip(events.column("correlation")[syncs].tolist(), syncs.tolist(), strict=True))
    sync = np.array([event_of.get(c, -1) for c in events.column("correlation")[wait].tolist()], dtype=np.int64)
    return _named_waits(events, works, launches, wait[sync >= 0], sync[sync >= 0]), Evidence.ID


def _named_waits(
    events: RankEvents, works: Works, launches: LaunchOrder, wait: np.ndarray, sync: np.ndarray
) -> np.ndarray:
    """[2, num_edges] (work, work): what the cuda_sync event of each wait call names, as far as it is in the window."""
    device, stream = events.column("device"), events.column("stream")
    lanes = zip(device[works.event].tolist(), stream[works.event].tolist(), strict=True)
    ordinal = dict(zip(lanes, works.stream.tolist(), strict=True))
    record = np.flatnonzero((events.calls == CallClass.RECORD_EVENT) & (events.column("correlation") >= 0))
    at = dict(zip(events.column("correlation")[record].tolist(), events.start_ns[record].tolist(), strict=True))
    named = events.column("wait_event")[sync]
    first = np.iinfo(np.int64).min + 1  # recorded before the window: after works launched before it
    moment = np.array([at.get(c, first) for c in named.tolist()], dtype=np.int64)  # [num_waits] ns of the record
    # Not named, or named wrongly (the event was recorded again before the profiler looked): what precedes the wait.
    moment = np.where((named >= 0) & (moment <= events.start_ns[wait]), moment, _recorded_at(events, wait))
    pairs = []
    for i, row in enumerate(sync.tolist()):
        awaited = ordinal.get((int(device[row]), int(stream[row])), -1)
        waiting = ordinal.get((int(device[row]), int(events.column("waiting_stream")[row])), -1)
        source, _ = launches.around(awaited, moment[i])
        _, target = launches.around(waiting, events.end_ns[wait[i]])
        if source >= 0 and target >= 0 and works.end_ns[source] <= works.begin_ns[target]:
            pairs.append((source, target))
    return np.unique(np.array(pairs, dtype=np.int64).reshape(-1, 2), axis=0).T


def _ordered_waits(events: RankEvents, works: Works, launches: LaunchOrder, wait: np.ndarray) -> np.ndarray:
    """[2, num_edges] (work, work) between streams, from program order."""
    target = np.full(
        len(wait), -1, dtype=np.int64
    )  # [num_waits] the work that the waiting thread launches next; -1 none
    for thread in np.unique(events.thread[wait]):
        at, rows = np.flatnonzero(launches.thread == thread), np.flatnonzero(events.thread[wait] == thread)
        slot = np.searchsorted(launches.launched_ns[at], events.end_ns[wait[rows]], side="left")
        target[rows[slot < len(at)]] = launches.work[at[slot[slot < len(at)]]]
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
    return unique_pairs(np.stack([source[possible], target[possible]]))


def _signatures(events: RankEvents, works: Works) -> np.ndarray:
    """[num_works] uint64 hash of what a work is: kernel, op, stream; the same in every step."""
    frame = events.table.events
    parts = [
        schema.codes_of(frame["name"])[works.event],
        np.where(works.op >= 0, schema.codes_of(frame["name"])[works.op], -1),
        works.stream,
    ]
    key = np.zeros(len(works), dtype=np.uint64)
    for part in parts:
        key = key * np.uint64(1_000_003) ^ part.astype(np.int64).view(np.uint64)
    return key


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
