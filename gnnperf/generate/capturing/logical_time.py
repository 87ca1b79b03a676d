"""Times for what has none: order decides, every begin and end is a tick, and a wait lasts until all peers have come.

rank 0   |op|[issue 0]|op| ·········· [wait 0]|op|
rank 1   |op|op|op|op|op|[issue 0][wait 0]|op|          both go on at the same moment

The times say only which comes before which, over all ranks: the graph's edges follow from them, its labels do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gnnperf.core import InputError
from gnnperf.generate.capturing.rank_run import Boundary, Event, RankRun, boundaries
from gnnperf.generate.capturing.works import ISSUE, MARK, WAIT, Issued

TICK_US = 1.0
TRANSFER_TICKS = 4  # longer than a tick, so that what waits is seen to wait
_SENDS = "c10d::send"

Meeting = tuple[tuple[int, ...], str, int]  # group (or channel), kind, and how many such there were before


@dataclass
class Clock:
    """One rank on its way through its events.

    Attributes:
        run: the rank.
        steps: begins and ends still to come.
        now_us: its time.
        begin_us, end_us: times of events, by the event's identity.
        issued_us, done_us: by number of the collective: when it was issued, and when it was seen to be over.
        meetings: by number of the collective, where it meets those of its peers.
        earlier: how many met at each place so far.
        waits_for: number of the collective that it waits for; None while it goes on.
    """

    run: RankRun
    steps: Iterator[Boundary]
    now_us: float = 0.0
    begin_us: dict[int, float] = field(default_factory=dict)
    end_us: dict[int, float] = field(default_factory=dict)
    issued_us: dict[int, float] = field(default_factory=dict)
    done_us: dict[int, float] = field(default_factory=dict)
    meetings: dict[int, Meeting] = field(default_factory=dict)
    earlier: Counter[tuple[tuple[int, ...], str]] = field(default_factory=Counter)
    waits_for: int | None = None


@dataclass(frozen=True)
class Timed:
    """One rank with its times.

    Attributes:
        run: the rank.
        events: of its program, marks left out.
        clock: when each began and ended.
    """

    run: RankRun
    events: tuple[Event, ...]
    clock: Clock


def in_logical_time(runs: Sequence[RankRun]) -> list[Timed]:
    """Every rank with times that agree over ranks."""
    clocks = [Clock(run, boundaries(run.events)) for run in runs]
    arrivals: dict[Meeting, dict[int, float]] = {}
    going = list(clocks)
    while going:
        before = [clock.now_us for clock in going]
        still = [clock for clock in going if _advance(clock, arrivals, {run.rank for run in runs})]
        if still == going and before == [clock.now_us for clock in going]:
            raise InputError(f"ranks {[c.run.rank for c in going]} wait for each other", where="captured step",
                             remedy="issue collectives in the same order on every rank of a group")  # fmt: skip
        going = still
    return [Timed(c.run, tuple(e for e in c.run.events if not e["name"].startswith(MARK)), c) for c in clocks]


def _advance(clock: Clock, arrivals: dict[Meeting, dict[int, float]], present: set[int]) -> bool:
    """Go on until the rank has to wait for one that has not come yet; whether it has further to go."""
    if clock.waits_for is not None and not _resume(clock, clock.waits_for, arrivals, present):
        return True
    for boundary in clock.steps:
        clock.now_us += TICK_US
        name = str(boundary.event["name"])
        times = clock.begin_us if boundary.begins else clock.end_us
        times[id(boundary.event)] = clock.now_us
        if name.startswith(ISSUE) and boundary.begins:
            _issue(clock, int(name.removeprefix(ISSUE)), arrivals)
        awaited = int(name.removeprefix(WAIT)) if name.startswith(WAIT) and boundary.begins else -1
        if awaited in clock.issued_us and not _resume(clock, awaited, arrivals, present):
            return True
    return False


def _issue(clock: Clock, number: int, arrivals: dict[Meeting, dict[int, float]]) -> None:
    place, kind = _meeting_place(clock.run.issued[number], clock.run.rank)
    meeting = place, kind, clock.earlier[place, kind]
    clock.earlier[place, kind] += 1
    clock.meetings[number], clock.issued_us[number] = meeting, clock.now_us
    arrivals.setdefault(meeting, {})[clock.run.rank] = clock.now_us


def _resume(clock: Clock, number: int, arrivals: dict[Meeting, dict[int, float]], present: set[int]) -> bool:
    """End the wait for a collective if all of its ranks that are captured have come."""
    meeting = clock.meetings[number]
    came = arrivals[meeting]
    clock.waits_for = None
    if not (set(meeting[0]) & present) <= set(came):
        clock.waits_for = number
        return False
    clock.now_us = max(clock.now_us, max(came.values()) + TRANSFER_TICKS * TICK_US)
    clock.done_us.setdefault(number, clock.now_us)
    return True


def _meeting_place(issued: Issued, rank: int) -> tuple[tuple[int, ...], str]:
    """(ranks, kind) that are the same for all parts of a collective; of a send and its receive: from, to."""
    if issued.peer is None:
        return issued.group, issued.op
    peer = issued.group[issued.peer]
    return (rank, peer) if issued.op == _SENDS else (peer, rank), f"channel {issued.tag}"
