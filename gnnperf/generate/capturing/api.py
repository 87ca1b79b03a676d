"""`capture`: every rank of a program, one after the other, on one laptop -> ExecutionGraph.

build on rank r -> steps without data -> profile -> logical times -> Kineto text -> trace -> graph -> no labels

The profiler of torch sees the same ops, with the same shapes, whether their tensors hold data or not. So what is
captured goes through the door that recordings go through, and nodes, edges and features are made by the same code.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnnperf.core import InputError, require
from gnnperf.generate.capturing.communication import ISSUE, MARK, WAIT
from gnnperf.generate.capturing.rank_run import Build, Event, RankRun, boundaries, run_rank
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.trace import CAPTURED, RunTrace, read_run

# A captured rank as a Kineto file, with the ranges that gloo's threads would have left: trace -> graph reads on.

# What gloo calls its range. It has no reduce-scatter: all of it is reduced everywhere.
_RANGES: Mapping[str, str] = {
    "c10d::allreduce_": "all_reduce",
    "c10d::_reduce_scatter_base_": "all_reduce", "c10d::reduce_scatter_": "all_reduce",
    "c10d::_allgather_base_": "all_gather", "c10d::allgather_": "all_gather",
    "c10d::alltoall_base_": "all_to_all", "c10d::alltoall_": "all_to_all", "c10d::broadcast_": "broadcast",
    "c10d::reduce_": "reduce", "c10d::gather_": "gather", "c10d::scatter_": "scatter", "c10d::barrier": "barrier",
    "c10d::send": "send", "c10d::recv_": "recv",
}  # fmt: skip
_TRANSPORT_THREAD = 1 << 30  # of the first group; programs have no such thread


def kineto_text(timed: "Clock", world_size: int) -> bytes:
    """The file's content."""
    begin, end = timed.begin_us, timed.end_us
    timed_events = [{**e, "ts": begin[id(e)], "dur": end[id(e)] - begin[id(e)]} for e in timed.events]
    groups = [{"pg_name": str(i), "ranks": list(ranks)} for i, ranks in enumerate(timed.run.groups)]
    head = {"schemaVersion": 1, "record_shapes": 1, "baseTimeNanoseconds": 0, "deviceProperties": [],
            "distributedInfo": {"backend": "gloo", "rank": timed.run.rank, "world_size": world_size,
                                "pg_count": len(groups), "pg_config": groups}}  # fmt: skip
    return json.dumps({**head, "traceEvents": [*timed_events, *_flows(timed), *_ranges(timed)]}).encode()


def _flows(timed: "Clock") -> list[Event]:
    """Arrows from forward to backward ops: both ends at the begins of their ops."""
    moved = {(e["tid"], e["ts"]): timed.begin_us[id(e)] for e in timed.events}
    ends = [{**e, "ts": moved[e["tid"], e["ts"]]} for e in timed.run.arrows if (e["tid"], e["ts"]) in moved]
    both = {e["id"] for e in ends if e["ph"] == "s"} & {e["id"] for e in ends if e["ph"] == "f"}
    return [e for e in ends if e["id"] in both]


def _ranges(timed: "Clock") -> Iterable[Event]:
    """One range per collective: from its issue to where it was waited for, or, where no one did so by name, at once."""
    main = next((e["tid"] for e in timed.events if str(e["name"]).startswith("ProfilerStep")), 0)
    threads: dict[tuple[int, ...], int] = {}
    for number, begin_us in timed.issued_us.items():
        issued = timed.run.issued[number]
        thread = main if issued.peer is not None else threads.setdefault(issued.group, _TRANSPORT_THREAD + len(threads))
        end_us = timed.done_us.get(number, begin_us + TICK_US / 2)
        begin_us += TICK_US / 4
        if issued.op not in _RANGES:
            raise InputError(f"{issued.op} cannot be captured", where="capture", allowed=", ".join(sorted(_RANGES)),
                             remedy="call its plain form, or record the program with gnnperf record")  # fmt: skip
        args: dict[str, Any] = {"Input Dims": [list(shape) for shape in issued.dims], "Input type": list(issued.types)}
        if issued.peer is None:
            args |= {"Collective name": _RANGES[issued.op], "Group size": len(issued.group),
                     "Process Group Ranks": str(list(issued.group))}  # fmt: skip
        yield {"ph": "X", "cat": "user_annotation", "name": f"gloo:{_RANGES[issued.op]}", "pid": 0, "tid": thread,
               "ts": begin_us, "dur": end_us - begin_us, "args": args}  # fmt: skip


def capture(
    build: Build, world_size: int = 1, *, name: str = "captured", ranks: Iterable[int] | None = None, steps: int = 2
) -> ExecutionGraph:
    """The graph of a training program that never runs: nothing is computed, nothing is sent, no GPU is needed.

    Args:
        build: makes the model, its wrappers (DDP, FSDP, ...), the optimizer and the inputs as one rank does, and
            returns its training step, a function without arguments. Called once per rank, with a process group up:
            `torch.distributed.get_rank()` states which rank it is. Everything must be made inside.
        world_size: number of ranks.
        name: of the graph.
        ranks: which ranks are captured; None all. The others' parts of collectives are then unknown.
        steps: how many steps the graph holds; two are run before them.

    Returns:
        Nodes and edges as of a recording on CPU ranks that talk over gloo; every latency, start and lag is NaN.

    Raises:
        InputError: a setting cannot be, or a step depends on values of tensors.
    """
    return build_graph(captured_run(build, world_size, name, ranks, steps))


def captured_run(
    build: Build, world_size: int, name: str = "captured", ranks: Iterable[int] | None = None, steps: int = 2
) -> RunTrace:
    """The trace behind a captured graph, in logical times, which its graph leaves out.

    Arguments and errors are those of `capture`; `gnnperf.trace.storage.write_run` writes it as a folder that
    predictions read.
    """
    require(world_size >= 1, "world_size", world_size, "a whole number >= 1")
    require(steps >= 1, "steps", steps, "a whole number >= 1")
    requested = tuple(range(world_size)) if ranks is None else tuple(sorted(set(ranks)))
    good = bool(requested) and requested[0] >= 0 and requested[-1] < world_size
    require(good, "ranks", requested, f"some of 0 to {world_size - 1}")
    runs = [run_rank(build, rank, world_size, steps) for rank in requested]
    with tempfile.TemporaryDirectory(prefix="gnnperf-capture-") as folder:
        for timed in in_logical_time(runs):
            (Path(folder) / f"rank_{timed.run.rank}.json").write_bytes(kineto_text(timed, world_size))
        run = read_run(Path(folder), name=name)
    tables = tuple(replace(table, meta=replace(table.meta, source_format=CAPTURED)) for table in run.tables)
    return replace(run, tables=tables)


# Times for what has none: order decides, every begin and end is a tick, and a wait lasts until all peers have come.
#
# rank 0   |op|[issue 0]|op| ·········· [wait 0]|op|
# rank 1   |op|op|op|op|op|[issue 0][wait 0]|op|          both go on at the same moment
#
# The times say only which comes before which, over all ranks: the graph's edges follow from them, its labels do not.

TICK_US = 1.0
TRANSFER_TICKS = 4  # longer than a tick, so that what waits is seen to wait
_SENDS = "c10d::send"

Meeting = tuple[tuple[int, ...], str, int]  # group (or channel), kind, and how many such there were before


@dataclass
class Clock:
    """One rank on its way through its events."""

    run: RankRun  # the rank
    steps: Iterator[tuple[Event, bool]]  # begins and ends still to come
    now_us: float = 0.0  # its time
    # begin_us, end_us: times of events, by the event's identity
    begin_us: dict[int, float] = field(default_factory=dict)
    end_us: dict[int, float] = field(default_factory=dict)
    # issued_us, done_us: by number of the collective: when it was issued, and when it was seen to be over
    issued_us: dict[int, float] = field(default_factory=dict)
    done_us: dict[int, float] = field(default_factory=dict)
    # by number of the collective, where it meets those of its peers
    meetings: dict[int, Meeting] = field(default_factory=dict)
    earlier: Counter[tuple[tuple[int, ...], str]] = field(default_factory=Counter)  # how many met at each place so far
    waits_for: int | None = None  # number of the collective that it waits for; None while it goes on

    @property
    def events(self) -> tuple[Event, ...]:
        """Of the program, marks left out."""
        return tuple(e for e in self.run.events if not e["name"].startswith(MARK))


def in_logical_time(runs: Sequence[RankRun]) -> "list[Clock]":
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
    return clocks


def _advance(clock: "Clock", arrivals: dict[Meeting, dict[int, float]], present: set[int]) -> bool:
    """Go on until the rank has to wait for one that has not come yet; whether it has further to go."""
    if clock.waits_for is not None and not _resume(clock, clock.waits_for, arrivals, present):
        return True
    for event, begins in clock.steps:
        clock.now_us += TICK_US
        name = str(event["name"])
        (clock.begin_us if begins else clock.end_us)[id(event)] = clock.now_us
        if name.startswith(ISSUE) and begins:
            _issue(clock, int(name.removeprefix(ISSUE)), arrivals)
        awaited = int(name.removeprefix(WAIT)) if name.startswith(WAIT) and begins else -1
        if awaited in clock.issued_us and not _resume(clock, awaited, arrivals, present):
            return True
    return False


def _issue(clock: "Clock", number: int, arrivals: dict[Meeting, dict[int, float]]) -> None:
    issued, rank = clock.run.issued[number], clock.run.rank
    place, kind = issued.group, issued.op  # the same for all parts of a collective; of a send and its receive: from, to
    if issued.peer is not None:
        peer = issued.group[issued.peer]
        place, kind = (rank, peer) if issued.op == _SENDS else (peer, rank), f"channel {issued.tag}"
    meeting = place, kind, clock.earlier[place, kind]
    clock.earlier[place, kind] += 1
    clock.meetings[number], clock.issued_us[number] = meeting, clock.now_us
    arrivals.setdefault(meeting, {})[clock.run.rank] = clock.now_us


def _resume(clock: "Clock", number: int, arrivals: dict[Meeting, dict[int, float]], present: set[int]) -> bool:
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
