"""RunTrace -> ExecutionGraph."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import pandas as pd

from gnnperf.core import MANY_ROWS, InputError, NodeType, Relation, each, in_copies, in_turn, return_freed_memory
from gnnperf.graph.collectives import collective_nodes
from gnnperf.graph.event_columns import CallClass, RankEvents, rank_events
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel, measured_end_us, table_counts
from gnnperf.graph.host_comm import HostComm, RankDraft, host_comm, rank_draft
from gnnperf.graph.matching import SEND_RECV, CommPart, comm_parts, match
from gnnperf.graph.rank_graph import RankGraph, rank_graph
from gnnperf.graph.steps import StepWindows, step_marks, step_windows
from gnnperf.graph.tables import EdgeList, concat_tables, node_table
from gnnperf.graph.waits import elapsed_waits
from gnnperf.hardware import placement_of
from gnnperf.trace import RunTrace, TraceTable

# Device and link nodes: placement and topology as edges, exchangeable for other hardware.

INTRA, INTER, HOST_LINK = "intra", "inter", "host_link"


def hardware(
    nodes: pd.DataFrame, ranks: Sequence[int], names: Sequence[str], num_hosts: int, world_size: int
) -> tuple[list[pd.DataFrame], EdgeList]:
    """One device node per traced rank, the links between ranks and one host link, after all nodes, and their edges.

    A link between hosts is there if there are several: groups larger than what one host holds cross it. `nodes` need
    no other columns than `FOR_OTHERS`; `names` are of devices.
    """
    num_ranks, base = len(ranks), len(nodes)
    devices = node_table(
        num_ranks, node_type=str(NodeType.DEVICE), rank=np.array(ranks),
        op_name=np.array([n or "unknown" for n in names], dtype=object),
    )  # fmt: skip
    listed = [INTRA, HOST_LINK, *([INTER] if num_hosts > 1 else [])]
    links = node_table(len(listed), node_type=str(NodeType.LINK), op_name=np.array(listed, dtype=object))
    intra, host_link = base + num_ranks, base + num_ranks + 1
    kind, rank = nodes["node_type"], nodes["rank"].to_numpy()
    edges = EdgeList()
    work = np.flatnonzero(kind.isin([NodeType.COMPUTE, NodeType.MEMORY, NodeType.COMM]).to_numpy())
    place = np.argsort(ranks)  # of each rank in order of numbers
    edges.add(work, base + place[np.searchsorted(ranks, rank[work], sorter=place)], Relation.RUNS_ON)
    comm, copy = (np.flatnonzero((kind == one).to_numpy()) for one in (NodeType.COMM, NodeType.MEMORY))
    group_size = nodes["group_size"].to_numpy()[comm]  # unknown groups are taken to leave their host
    leaves = (num_hosts > 1) & ((group_size < 0) | (group_size > max(world_size // num_hosts, 1)))
    edges.add(comm, np.where(leaves, base + num_ranks + 2, intra), Relation.CROSSES)
    edges.add(copy, np.full(len(copy), host_link), Relation.CROSSES)
    device = np.arange(base, base + num_ranks)
    for link in range(intra, intra + len(listed)):
        edges.add(np.full(num_ranks, link), device, Relation.CONNECTS)
    return [devices, links], edges


# Measured labels of the joint graph: step times, and the delay along binding edges.


def step_labels(ranks: list[RankGraph], windows: StepWindows) -> tuple[StepLabel, ...]:
    """Period and makespan of every whole step (definitions: schema.StepTimeKind)."""
    completion = windows.cpu_end_ns / 1000.0  # [num_ranks, num_steps]
    for i, rank in enumerate(ranks):
        step = rank.column("step")[rank.first_node]  # [num_works]
        inside = step >= 0
        np.maximum.at(completion[i], step[inside], rank.works.end_ns[inside] / 1000.0)
    start = windows.begin_ns / 1000.0
    last = completion.max(axis=0)  # [num_steps]
    return tuple(
        StepLabel(
            step=k, name=name, period_us=float(last[k] - last[k - 1]) if windows.continues[k] else None,
            makespan_us=float(last[k] - start[:, k].min()),
            rank_start_us=tuple(start[:, k].tolist()), rank_completion_us=tuple(completion[:, k].tolist()),
        )
        for k, name in enumerate(windows.names)
    )  # fmt: skip


def measured_lags(nodes: pd.DataFrame, edges: pd.DataFrame) -> np.ndarray:
    """[num_edges] us from the moment an edge allows its target to the target's start; NaN unless it was binding.

    Among a target's edges that carry a delay class, the one that allows it last is binding.
    """
    start, end = nodes["start_us"].to_numpy(), measured_end_us(nodes)
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    launches = (edges["relation"] == Relation.LAUNCHES).to_numpy()
    moment = np.where(launches, start[src], end[src])  # [num_edges]
    classed = np.flatnonzero(edges["lag_class"].notna().to_numpy() & ~np.isnan(moment))
    order = classed[np.lexsort((moment[classed], dst[classed]))]
    last = np.r_[dst[order[1:]] != dst[order[:-1]], True][-len(order) :] if len(order) else np.zeros(0, bool)
    lag = np.full(len(edges), np.nan)
    lag[order[last]] = (start[dst] - moment)[order[last]]
    return lag


# Sends and receives: when they really ended. Their ranges end when they are waited for, which may be much later.
#
# rank 0   |isend|  other work ............  |wait|         the range of the send lasts to the wait: it shows nothing
# rank 1         |recv ·····|                               the receive waits at once: the message had come when it
# ended rank 2   |irecv|  other work ............  |wait|         came while the rank was busy: nothing saw it (hidden)

Tied = tuple[RankDraft, HostComm]


@dataclass(frozen=True)
class _Wait:
    """Where a part is waited for: the piece's begin, and whether it directly follows the issue; None: nowhere seen."""

    begin_ns: int | None
    at_once: bool


def settle(ranks: Sequence[Tied]) -> list[Tied]:
    """Every rank with the ends of its sends and receives as far as they can be known, and which stay hidden."""
    waits = [_waits(draft, comm) for draft, comm in ranks]
    ends = [draft.works.end_ns.copy() for draft, _ in ranks]
    hidden = [np.zeros(len(draft.works), dtype=bool) for draft, _ in ranks]
    parts = [comm_parts(i, tied[0].events, tied[0].works, _steps(*tied)) for i, tied in enumerate(ranks)]
    for pair in match(list(chain.from_iterable(parts))):
        if pair[0].key[0] != SEND_RECV or len(pair) != 2:
            continue
        last = max(p.begin_ns for p in pair)
        for part in pair:
            wait = waits[part.rank_index].get(part.work, _Wait(None, False))
            if part.sends:
                # Seen if its rank was waiting when the receiver came, else as soon as that came.
                seen = wait.at_once or (wait.begin_ns is not None and wait.begin_ns <= last)
                ends[part.rank_index][part.work] = part.end_ns if seen else min(part.end_ns, last)
            else:
                hidden[part.rank_index][part.work] = _is_hidden(part, last, wait)
                unseen = last if wait.begin_ns is None else min(part.end_ns, wait.begin_ns)  # as soon as waited for
                ends[part.rank_index][part.work] = unseen if _is_hidden(part, last, wait) else part.end_ns
    return [
        (replace(draft, works=replace(draft.works, end_ns=end)), replace(comm, hidden=never_seen))
        for (draft, comm), end, never_seen in zip(ranks, ends, hidden, strict=True)
    ]


def _waits(draft: RankDraft, comm: HostComm) -> dict[int, _Wait]:
    issuer = dict(zip(comm.issued[1].tolist(), comm.issued[0].tolist(), strict=True))
    return {
        work: _Wait(int(draft.pieces.begin_ns[piece]), piece == issuer[work] + 1)
        for work, piece in comm.awaited.T.tolist()
    }


def _steps(draft: RankDraft, comm: HostComm) -> np.ndarray:
    """[num_works] step of the issuing op; -1 unknown or outside."""
    step = np.full(len(draft.works), -1, dtype=np.int32)
    step[comm.issued[1]] = draft.piece_step[comm.issued[0]]
    return step


def _is_hidden(part: CommPart, last_ns: int, wait: _Wait) -> bool:
    """Whether a message came unseen: its rank was busy for most of the time that it may have taken."""
    if wait.begin_ns is None:
        return True
    return not wait.at_once and part.end_ns - wait.begin_ns < wait.begin_ns - last_ns


# A rank's device clock against its host clock.
#
# host     launch |                      sync returns |
# device            kernel |-----------|
#          kernel start >= launch start, and kernel end <= return of the call that waited for it: the device clock's
# offset is bracketed. It is moved only as far as the bracket demands (offsets of -80 to +70 us were seen).

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
    margin = events.end_ns[sync[known]] - last_end[count[known] - 1]
    return float(margin.min()) if len(margin) else np.inf


def correct_clock(table: TraceTable, shift_ns: int) -> TraceTable:
    """The same table with device times moved by `shift_ns`."""
    if shift_ns == 0:
        return table
    events = table.events
    on_device = (events["device"] >= 0).to_numpy() & (events["thread"] < 0).to_numpy()
    moved = events.assign(start_ns=np.where(on_device, events["start_ns"] + shift_ns, events["start_ns"]))
    return replace(table, events=moved)


def build_graph(run: RunTrace) -> ExecutionGraph:
    """The execution graph of a run: device clocks corrected, all ranks joined; of a captured program without labels.

    Raises:
        InputError: a rank has no events.
    """
    graph = graph_of_corrected(correct_clocks(run))
    return _unlabeled(graph) if run.is_captured else graph


def correct_clocks(run: RunTrace) -> RunTrace:
    """The run with each rank's device clock moved into the bracket its own launches and waits give."""
    base = run_base_time_ns(run)
    requested = each(run.tables, "comparing clocks", "ranks")
    shifts = [clock_bracket(rank_events(table, base)).shift_ns for table in requested]
    tables = tuple(correct_clock(table, shift) for table, shift in zip(run.tables, shifts, strict=True))
    moved = [f"rank {t.meta.rank}: {s / 1000:+.1f} us" for t, s in zip(tables, shifts, strict=True) if abs(s) > 5_000]
    note = (f"device clocks moved against their hosts: {', '.join(moved)}",) if moved else ()
    return replace(run, tables=tables, warnings=(*run.warnings, *note))


# Columns of nodes that collective nodes and hardware are made of.
FOR_OTHERS = ["node_type", "rank", "step", "op_name", "phase", "dtype", "collective", "group_size"]


def graph_of_corrected(run: RunTrace) -> ExecutionGraph:
    """The graph of a run whose clocks are right. An order-preserving warp of its times changes labels only."""
    base = run_base_time_ns(run)
    events = [rank_events(table, base) for table in run.tables]
    windows = step_windows(events)
    ranks = _rank_graphs(events, windows)
    return_freed_memory()
    offsets = np.cumsum([0, *map(len, ranks)]).tolist()
    tables = [table for r in ranks for table in r.nodes]
    few = concat_tables([table[FOR_OTHERS] for table in tables])
    groups = match(list(chain.from_iterable(r.parts for r in ranks)))
    joint = collective_nodes(groups, ranks, offsets, few, run.world_size)
    numbers = tuple(e.rank for e in events)
    listed = [table.meta.devices for table in run.tables]  # may be more than ranks, all of one kind or none named
    device_names = tuple(one[min(i, len(one) - 1)].name if one else "" for i, one in enumerate(listed))
    few = concat_tables([few, joint.nodes[FOR_OTHERS]])
    placement = placement_of(run.card)
    num_hosts = 1 if placement is None else placement.hosts
    machine, machine_edges = hardware(few, numbers, device_names, num_hosts, run.world_size)
    edges = concat_tables([
        *(r.edges.shifted(o).table() for r, o in zip(ranks, offsets, strict=False)),
        joint.edges.table(), *(r.feeds.shifted(o).table() for r, o in zip(ranks, offsets, strict=False)),
        machine_edges.table(),
    ])  # fmt: skip
    labels, rank_counts = step_labels(ranks, windows), [r.counts for r in ranks]
    warnings = _warnings(windows, events)
    tables += [joint.nodes, *machine]
    del ranks, events, groups, few  # before the nodes are joined
    return_freed_memory()
    nodes = concat_tables(tables)
    del tables
    # Exit latencies, and starts such that start + latency is the measured end (unknown: the end itself).
    latency, start = nodes["latency_us"].to_numpy(copy=True), nodes["start_us"].to_numpy(copy=True)
    latency[joint.exit_node] = joint.exit_us
    start[joint.exit_node] -= np.nan_to_num(joint.exit_us)
    nodes = nodes.assign(latency_us=latency, start_us=start, node_id=np.arange(len(nodes), dtype=np.int64))
    edges = edges.assign(lag_us=measured_lags(nodes, edges))
    counts = Counter[str]()
    for one in rank_counts:
        counts.update(one)
    return ExecutionGraph(
        name=run.name, nodes=nodes, edges=edges, steps=labels,
        ranks=numbers, world_size=run.world_size, device_names=device_names,
        placement=placement, tables=table_counts(run.card),
        counts=dict(counts) | joint.counts, warnings=(*run.warnings, *warnings),
    ).validate()  # fmt: skip


def _rank_graphs(events: list[RankEvents], windows: StepWindows) -> list[RankGraph]:
    """Every rank by itself, in copies of the process; all together, where some need what the others show.

    Those are ranks without device work, whose host collectives are waited for, and ranks that request the time between
    two events.
    """
    if all(e.is_device.any() and not (e.calls == CallClass.ELAPSED_TIME).any() for e in events):
        how = in_copies if sum(len(e.calls) for e in events) >= MANY_ROWS else in_turn
        return how(partial(_by_itself, events, windows), range(len(events)), "building the graph", unit="ranks")
    drafts = [rank_draft(e, windows, i) for i, e in enumerate(each(events, "finding host segments", "ranks"))]
    without = [i for i, draft in enumerate(drafts) if not draft.on_device]
    tied = dict(zip(without, settle(host_comm([drafts[i] for i in without])), strict=True))
    elapsed = elapsed_waits([(draft.events, draft.works) for draft in drafts])
    return [
        rank_graph(i, *tied[i], windows) if i in tied else rank_graph(i, draft, None, windows, elapsed[i])
        for i, draft in enumerate(each(drafts, "building the graph", "ranks"))
    ]


def _by_itself(events: list[RankEvents], windows: StepWindows, rank_index: int) -> RankGraph:
    return rank_graph(rank_index, rank_draft(events[rank_index], windows, rank_index), None, windows)


def run_base_time_ns(run: RunTrace) -> int:
    """Absolute time of the run's first event, to which graph times are relative; refuses a rank without events."""
    empty = [str(table.meta.rank) for table in run.tables if not len(table.events)]
    if empty or not run.tables:
        raise InputError(
            f"rank {', '.join(empty)} holds no events" if empty else "holds no ranks", where=f"run {run.name!r}",
            remedy="leave the empty file out, or record the rank again",
        )  # fmt: skip
    return min(table.meta.base_time_ns + int(table.events["start_ns"].min()) for table in run.tables)


def _warnings(windows: StepWindows, events: list[RankEvents]) -> tuple[str, ...]:
    marked = [str(e.rank) for e in events if step_marks(e)]
    if windows.has_marks or not marked:  # `trace.checks` warns of a trace without marks
        return ()
    return (f"the ranks have no ProfilerStep mark in common (ranks with marks: {', '.join(marked)}): the whole window "
            "is taken for one step",)  # fmt: skip


# A graph of which nothing was measured: of a captured step.

_TIMES = ("start_us", "latency_us", "blocked_us")
_PROFILER = ("opened_ops", "opened_ranges")  # what a profiler records costs time; here none ran


def _unlabeled(graph: ExecutionGraph) -> ExecutionGraph:
    """The same nodes and edges; every time unknown, and no cost of a profiler."""
    nothing = np.full(len(graph.nodes), np.nan)
    none = np.zeros(len(graph.nodes), dtype=np.int32)
    nodes = graph.nodes.assign(**dict.fromkeys(_TIMES, nothing), **dict.fromkeys(_PROFILER, none))
    edges: pd.DataFrame = graph.edges.assign(lag_us=np.nan)
    unknown = tuple(float("nan") for _ in graph.ranks)
    steps = tuple(
        replace(s, period_us=None, makespan_us=float("nan"), rank_start_us=unknown, rank_completion_us=unknown)
        for s in graph.steps
    )
    return replace(graph, nodes=nodes, edges=edges, steps=steps).validate()
