"""Latencies in, start times, step time, slack and critical path out.

step 0   |-- host --|-- host --|            C(0)
         |   gpu  ------------------|
step 1              |-- host --|-- host --|            C(1)    period = C(K-1) - C(K-2)
                    |   gpu    ·····|--------------|           makespan = C(K-1) - start of step K-1
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import TIMED_RELATIONS, WORK_TYPES, InputError, Relation, compiled, require
from gnnperf.graph import ExecutionGraph, LaneEnds, lane_ends

# The one-pass discrete-event schedule: longest paths in (max, +) over a directed acyclic graph.

NUM_UNROLLED = 4  # steps in a row until the increment is a period: the first ones fill the lanes


@compiled
def topological_order(num_nodes, src, dst):  # type: ignore[no-untyped-def] # pragma: no cover
    """Kahn's algorithm. Returns (order [num_sorted], first_edge [num_nodes + 1], edges by dst [num_edges]).

    num_sorted < num_nodes means that the graph has a cycle among the nodes left out.
    """
    num_edges = len(src)
    out_first = np.zeros(num_nodes + 1, dtype=np.int64)
    in_first = np.zeros(num_nodes + 1, dtype=np.int64)
    for e in range(num_edges):
        out_first[src[e] + 1] += 1
        in_first[dst[e] + 1] += 1
    for n in range(num_nodes):
        out_first[n + 1] += out_first[n]
        in_first[n + 1] += in_first[n]
    out_fill, in_fill = out_first[:-1].copy(), in_first[:-1].copy()
    by_src = np.empty(num_edges, dtype=np.int64)
    by_dst = np.empty(num_edges, dtype=np.int64)
    for e in range(num_edges):
        by_src[out_fill[src[e]]] = e
        out_fill[src[e]] += 1
        by_dst[in_fill[dst[e]]] = e
        in_fill[dst[e]] += 1
    missing = in_first[1:] - in_first[:-1]
    order = np.empty(num_nodes, dtype=np.int64)
    tail = 0
    for n in range(num_nodes):
        if missing[n] == 0:
            order[tail] = n
            tail += 1
    head = 0
    while head < tail:
        n = order[head]
        head += 1
        for position in range(out_first[n], out_first[n + 1]):
            m = dst[by_src[position]]
            missing[m] -= 1
            if missing[m] == 0:
                order[tail] = m
                tail += 1
    return order[:tail], in_first, by_dst


@compiled
def forward_pass(order, in_first, by_dst, src, from_start, lag_us, latency_us, ready_us):  # type: ignore[no-untyped-def] # pragma: no cover
    """start_us [num_nodes] = max(ready, max over edges of (start or end of u) + lag), binding edges (-1: ready)."""
    start = ready_us.copy()
    binding = np.full(len(ready_us), -1, dtype=np.int64)
    for position in range(len(order)):
        n = order[position]
        for slot in range(in_first[n], in_first[n + 1]):
            e = by_dst[slot]
            u = src[e]
            moment = start[u] + lag_us[e]
            if not from_start[e]:
                moment += latency_us[u]
            if moment > start[n]:
                start[n] = moment
                binding[n] = e
    return start, binding


@compiled
def backward_pass(order, in_first, by_dst, src, from_start, lag_us, latency_us, horizon_us):  # type: ignore[no-untyped-def] # pragma: no cover
    """Latest starts that do not move the horizon; slack = latest - earliest start.

    An edge from the START of u leaves u's own latency free, so the latest start of u is bound by both kinds.
    """
    latest = horizon_us - latency_us
    for position in range(len(order) - 1, -1, -1):
        n = order[position]
        for slot in range(in_first[n], in_first[n + 1]):
            e = by_dst[slot]
            u = src[e]
            moment = latest[n] - lag_us[e]
            if not from_start[e]:
                moment -= latency_us[u]
            if moment < latest[u]:
                latest[u] = moment
    return latest


_EPSILON_US = 1e-6
CHECK = "check the shapes and sizes in the trace, the numbers of the hardware, and the edits"


@dataclass(frozen=True)
class Schedule:
    """When everything of one step happens."""

    start_us: np.ndarray  # [num_nodes] float64, from the start of the (last unrolled) step
    end_us: np.ndarray  # [num_nodes] float64, likewise
    slack_us: np.ndarray  # [num_nodes] how much later a node may start without moving the step's end
    on_critical_path: np.ndarray  # [num_nodes] bool, one longest chain of binding constraints back to the step's start
    makespan_us: float  # latest completion minus the earliest rank's start, of the last unrolled step
    # increment of the completion time between the last two unrolled steps; None if not unrolled
    period_us: float | None
    rank_step_time_us: np.ndarray  # [num_ranks] completion of each rank minus the earliest rank's start
    order: np.ndarray  # [num_nodes] nodes in a topological order

    @property
    def step_time_us(self) -> float:
        """The period where the step was unrolled, else the makespan."""
        return self.makespan_us if self.period_us is None else self.period_us


@dataclass(frozen=True)
class TimedEdges:
    """The constraints of a graph in the engine's form."""

    index: np.ndarray  # [num_timed] rows of graph.edges
    src: np.ndarray  # src, dst: [num_timed] int64
    dst: np.ndarray
    from_start: np.ndarray  # [num_timed] bool, the constraint leaves the START of src (launches)
    order: np.ndarray  # [num_nodes] topological order; in_first, by_dst: incoming edges by node
    in_first: np.ndarray
    by_dst: np.ndarray

    @property
    def passes(self) -> tuple[np.ndarray, ...]:
        """The first arguments of both passes."""
        return self.order, self.in_first, self.by_dst, self.src, self.from_start


# By table of edges and number of nodes; only of tables that still exist.
_SORTED: dict[tuple[int, int], tuple["weakref.ref[pd.DataFrame]", TimedEdges]] = {}


def timed_edges(graph: ExecutionGraph) -> TimedEdges:
    """Select and sort the edges that constrain time, once for each table of edges.

    Raises:
        InputError: the constraints form a cycle.
    """
    key = id(graph.edges), graph.num_nodes
    if key not in _SORTED:
        _SORTED[key] = weakref.ref(graph.edges, lambda _: _SORTED.pop(key, None)), _timed_edges(graph)
    return _SORTED[key][1]


def _timed_edges(graph: ExecutionGraph) -> TimedEdges:
    relation = graph.edges["relation"]
    timed = relation.isin([str(r) for r in TIMED_RELATIONS]).to_numpy()
    index = np.flatnonzero(timed)
    src, dst = graph.edges["src"].to_numpy()[index], graph.edges["dst"].to_numpy()[index]
    from_start = (relation == Relation.LAUNCHES).to_numpy()[index]
    order, in_first, by_dst = topological_order(graph.num_nodes, src, dst)
    if len(order) < graph.num_nodes:
        stuck = np.setdiff1d(np.arange(graph.num_nodes), order)[:5]
        what = f"{graph.num_nodes - len(order)} nodes wait for each other in a cycle (first: {stuck.tolist()})"
        remedy = "import the trace again; if it persists, report it with the trace"
        raise InputError(what, where=f"graph {graph.name!r}", remedy=remedy)
    return TimedEdges(index, src, dst, from_start, order, in_first, by_dst)


def schedule(
    graph: ExecutionGraph, latency_us: np.ndarray, lag_us: np.ndarray, *, num_unrolled: int = 1,
    ready_us: np.ndarray | None = None,
) -> Schedule:  # fmt: skip
    """Schedule one step `num_unrolled` times; lanes (threads, streams) and `graph.cross_step` waits continue.

    Args:
        graph: one step (`graph.step(k)`), or a whole window with num_unrolled=1.
        latency_us: [num_nodes] float64, finite, not negative.
        lag_us: [num_edges] float64, finite; delay along each edge.
        num_unrolled: copies of the step; 2 or more give a period.
        ready_us: [num_nodes] earliest starts of the first copy (rank offsets, busy streams); default 0.

    Raises:
        InputError: a negative latency, a latency, lag or ready time that is not finite or missing, or a cycle.
    """
    latency_us, lag_us, ready_us = checked(graph, latency_us, lag_us, ready_us, num_unrolled)
    edges = timed_edges(graph)
    return schedule_copies(graph, edges, np.broadcast_to(latency_us, (num_unrolled, graph.num_nodes)), lag_us, ready_us)


def checked(
    graph: ExecutionGraph, latency_us: np.ndarray, lag_us: np.ndarray, ready_us: np.ndarray | None, num_unrolled: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """([num_nodes] latencies, [num_edges] lags, [num_nodes] ready times), finite: refuses others as `schedule` does."""
    require(num_unrolled >= 1, "num_unrolled", num_unrolled, "1 or more copies of the step")
    latency_us = _finite(latency_us, "latency_us", graph, graph.num_nodes)
    if (latency_us < 0).any():
        first = int(np.flatnonzero(latency_us < 0)[0])
        raise InputError(f"{node_text(graph, first)} takes {latency_us[first]} us", where=f"graph {graph.name!r}",
                         allowed="latencies of 0 or more", remedy=CHECK)  # fmt: skip
    ready = np.zeros(graph.num_nodes) if ready_us is None else ready_us
    lag_us = _finite(lag_us, "lag_us", graph, len(graph.edges))
    return latency_us, lag_us, _finite(ready, "ready_us", graph, graph.num_nodes)


def schedule_copies(
    graph: ExecutionGraph, edges: TimedEdges, latency_us: np.ndarray, lag_us: np.ndarray, ready_us: np.ndarray
) -> Schedule:
    """The (max, +) pass over copies of one step, each with latencies of its own; checked values only.

    `latency_us` is [num_copies, num_nodes], `ready_us` [num_nodes] holds for the first copy.
    """
    timed_lag_us, lanes = lag_us[edges.index], lane_ends(graph.nodes)
    awaited, waiting = cross_step_edges(graph, lanes)
    start, binding = forward_pass(*edges.passes, timed_lag_us, latency_us[0], ready_us)
    end, step_start, previous_end = start + latency_us[0], ready_us.min(initial=0.0), None
    work, rank = is_work(graph), graph.nodes["rank"].to_numpy()
    for latency in latency_us[1:]:
        previous_end = float(end[work].max(initial=0.0))
        step_start = end[lanes.last_main].min(initial=np.inf) if len(lanes.last_main) else previous_end
        # Nodes without a predecessor may not start before their rank's main thread has begun the step, which their
        # incoming edges say; 0 is therefore no constraint here.
        ready = np.zeros(graph.num_nodes)
        np.maximum.at(ready, waiting, end[awaited])
        start, binding = forward_pass(*edges.passes, timed_lag_us, latency, ready)
        end = start + latency
    completion = float(end[work].max(initial=0.0))
    slack = backward_pass(*edges.passes, timed_lag_us, latency_us[-1], completion) - start
    return Schedule(
        start_us=start - step_start,
        end_us=end - step_start,
        slack_us=np.maximum(slack, 0.0),
        on_critical_path=_critical_path(edges, start, end, binding, completion, work),
        makespan_us=float(completion - step_start),
        period_us=None if previous_end is None else float(completion - previous_end),
        rank_step_time_us=_ends_us(rank[work], end[work], graph.ranks) - step_start,
        order=edges.order,
    )


def _ends_us(rank: np.ndarray, end_us: np.ndarray, ranks: Sequence[int]) -> np.ndarray:
    """[num_ranks] when the last node of each rank ends, 0 without any; `rank` and `end_us` are [num_work]."""
    order = np.argsort(ranks)
    place = order[np.minimum(np.searchsorted(ranks, rank, sorter=order), len(ranks) - 1)]
    own = np.asarray(ranks)[place] == rank
    result = np.zeros(len(ranks))
    np.maximum.at(result, place[own], end_us[own])
    return result


def cross_step_edges(graph: ExecutionGraph, lanes: LaneEnds) -> np.ndarray:
    """[2, num_carried] (node of one copy of the step, node of the next copy that waits for its end).

    A lane's first node follows its last one; next to that, what waits for work of the step before.
    """
    along = np.stack([lanes.last, lanes.first])
    return along if graph.cross_step is None else np.concatenate([along, graph.cross_step], axis=1)


def node_text(graph: ExecutionGraph, node: int) -> str:
    """A node as messages name it: its op, its rank, its number."""
    row = graph.nodes.iloc[node]
    named = next((str(row[c]) for c in ("op_name", "event_name", "node_type") if isinstance(row[c], str)), "?")
    return f"{named} (node {node}, rank {row['rank']})"


def _finite(values: np.ndarray, what: str, graph: ExecutionGraph, count: int) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (count,):
        raise InputError(f"{what} has shape {list(values.shape)}", where=f"graph {graph.name!r}", allowed=f"[{count}]")
    if not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values))
        first = node_text(graph, int(bad[0])) if count == graph.num_nodes else f"edge {bad[0]}"
        raise InputError(f"{what} is not finite at {len(bad)} of {count} (first: {first})",
                         where=f"graph {graph.name!r}", remedy=CHECK)  # fmt: skip
    return values


def is_work(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: nodes that take part in the step's end."""
    return graph.nodes["node_type"].isin([str(t) for t in WORK_TYPES]).to_numpy()


def _critical_path(
    edges: TimedEdges, start: np.ndarray, end: np.ndarray, binding: np.ndarray, completion: float, work: np.ndarray
) -> np.ndarray:
    """[num_nodes] bool: from a node that ends last, back along binding edges."""
    path = np.zeros(len(start), dtype=bool)
    last = np.flatnonzero(work & (end >= completion - _EPSILON_US))
    node = int(last[0]) if len(last) else -1
    while node >= 0 and not path[node]:
        path[node] = True
        node = int(edges.src[binding[node]]) if binding[node] >= 0 else -1
    return path
