"""Explained waiting: which share of blocked host time and of device gaps the graph's edges account for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.graph.build import correct_clocks, run_base_time_ns
from gnnperf.graph.event_columns import BLOCKING, CallClass, RankEvents, rank_events
from gnnperf.graph.host import segmenting_calls
from gnnperf.graph.rank_graph import consecutive
from gnnperf.graph.steps import step_windows
from gnnperf.graph.waits import LAUNCH_QUEUE_DEPTH, LaunchOrder, blocking_copies, event_waits, host_waits
from gnnperf.graph.works import Works, device_works
from gnnperf.trace import RunTrace

_NEAR_NS = 25_000
_LONG_NS = 30_000


@dataclass(frozen=True)
class ExplainedWaiting:
    """Sums over all ranks and whole steps.

    Attributes:
        blocked_us: time inside synchronizing calls, cudaMalloc/cudaFree and launches over 30 us (of a pageable copy:
            until the copy begins, or until its end if the call outlasts it).
        blocked_explained_us: of that, in calls for which an edge from program order ends inside and within 25 us.
        blocked_timing_us: additionally, by edges inferred from time distance (replay only).
        blocked_external_us: of what is not explained, calls that cannot be waiting for the device: it had nothing left
            to do; or it was still busy with earlier work when an allocation returned; or a launch found its queue less
            than half full. The allocator, module loading, staging of pageable memory and the scheduler are left.
        gap_us: device idle time in gaps of more than 30 us on a stream.
        gap_explained_us: of that, gaps that end within 25 us of a launch, an awaited event or a collective's arrival.
    """

    blocked_us: float
    blocked_explained_us: float
    blocked_timing_us: float
    blocked_external_us: float
    gap_us: float
    gap_explained_us: float


def explained_waiting(run: RunTrace) -> ExplainedWaiting:
    """Measure a run's waiting and how much of it edges explain."""
    run = correct_clocks(run)
    events = [rank_events(table, run_base_time_ns(run)) for table in run.tables]
    windows = step_windows(events)
    rows = []
    for i, rank in enumerate(events):
        works = device_works(rank)
        rows.append(np.r_[_blocked(rank, works, windows.step_of(i, rank.start_ns) >= 0), _gaps(rank, works)])
    return ExplainedWaiting(*(np.sum(rows, axis=0) / 1000.0).tolist())


def _blocked(events: RankEvents, works: Works, in_step: np.ndarray) -> np.ndarray:
    """[4] ns: blocked, explained by order, by timing, and unexplained but provably no wait for the device."""
    duration = _waiting_part(events, works)
    blocking = np.isin(events.calls, [int(c) for c in BLOCKING])
    launch = np.zeros(len(duration), dtype=bool)
    launch[segmenting_calls(events)] = True
    counted = in_step & (blocking | (launch & (duration > _LONG_NS))) & (events.parent != np.arange(len(duration)))
    result = host_waits(events, works)
    order, timing = np.zeros(len(duration), dtype=bool), np.zeros(len(duration), dtype=bool)
    for pairs, flags in ((result.before_call, order), (result.own_copy, order), (result.guessed, timing)):
        end, call = works.end_ns[pairs[0]], pairs[1]
        near = (end > events.start_ns[call]) & (events.start_ns[call] + duration[call] - end <= _NEAR_NS)
        flags[call[near]] = True
    unexplained = counted & ~order & ~timing
    external = unexplained & _waits_external(events, works, launch & ~blocking)
    masks = (counted, counted & order, counted & timing & ~order, external)
    return np.array([duration[mask].sum() for mask in masks], float)


def _waits_external(events: RankEvents, works: Works, is_launch: np.ndarray) -> np.ndarray:
    """[num_events] bool: a call that cannot be waiting for the device (see ExplainedWaiting)."""
    launches = LaunchOrder(events, works)
    last_end = np.maximum.accumulate(works.end_ns[launches.work])
    launched = np.searchsorted(launches.launched_ns, events.start_ns, side="left")  # works launched before
    ended = np.searchsorted(np.sort(works.end_ns[launches.work]), events.start_ns, side="right")
    never = np.iinfo(np.int64).min
    until = np.r_[never, last_end][launched]  # when the device is done with what was launched before
    idle = until <= events.start_ns
    outlasted = (events.calls == CallClass.ALLOCATE) & (until > events.end_ns)
    return idle | outlasted | (is_launch & (launched - ended < LAUNCH_QUEUE_DEPTH // 2))


def _waiting_part(events: RankEvents, works: Works) -> np.ndarray:
    """[num_events] ns a call may be waiting: all of it; of a copy that outlasts the call, until it begins."""
    duration = (events.end_ns - events.start_ns).copy()
    copies = blocking_copies(events, works)
    call = works.call[copies]
    staging = works.end_ns[copies] > events.end_ns[call]
    until = np.clip(works.begin_ns[copies], events.start_ns[call], events.end_ns[call])
    duration[call[staging]] = (until - events.start_ns[call])[staging]
    return duration


def _gaps(events: RankEvents, works: Works) -> np.ndarray:
    """[2] ns: idle time in gaps over 30 us on a stream, and the part that ends near a cause."""
    before, after = consecutive(works.stream)
    gap = works.begin_ns[after] - works.end_ns[before]
    cause = np.where(works.call >= 0, events.start_ns[works.call], np.iinfo(np.int64).min)
    copies = blocking_copies(events, works)  # a blocking copy starts when its call has drained the stream
    cause[copies] = np.maximum(
        cause[copies], works.begin_ns[copies] * (works.begin_ns[copies] <= events.end_ns[works.call[copies]])
    )
    between = event_waits(events, works).all
    np.maximum.at(cause, between[1], works.end_ns[between[0]])
    explained = works.begin_ns[after] - cause[after] <= _NEAR_NS
    wide = gap > _LONG_NS
    return np.array([gap[wide].sum(), gap[wide & explained].sum()], float)
