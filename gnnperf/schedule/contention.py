"""The second pass: what overlaps shares devices, cores and links, takes longer, and the step is scheduled again.

first pass    compute |== A ==|== B ==|          every latency is of the isolated op
              link       |== transfer ==|
second pass   compute |== A ===|=== B ===|       A and B advance at 1 / slowdown while the transfer runs
              link       |== transfer ==|

The first pass is (max, +) and knows no overlap. The second one walks through time once (progress.py): between two
events everything that runs advances at the rate of the set that runs. Its solution is the fixed point of "stretch every
interval by its overlap, schedule again". Walking forward needs no iteration, and the solution is unique: what happens
at a moment depends on earlier moments only. The stretched latencies go through the (max, +) pass again, which gives
slack and critical path.

Holds exactly: nothing is faster than in the first pass but transfers whose lines have tokens (Bucket), by those tokens;
without overlap, or with slowdowns of 1 and nothing shared, and without buckets, latencies and schedule are those of the
first pass to the bit. More cores or bandwidth shorten the step where the work
that shares is there from the start, and not always otherwise: what ends earlier may let work begin earlier that then
shares with the critical path (Graham 1969, "Bounds on multiprocessing timing anomalies").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.graph import ExecutionGraph, Isolated, lane_ends
from gnnperf.hardware import Bucket
from gnnperf.schedule.longest_path import Schedule, TimedEdges, checked, cross_step_edges, schedule_copies, timed_edges
from gnnperf.schedule.progress import Shared, State, Steps, simulate
from gnnperf.schedule.resource_demands import MOVES, RUNS, ResourceDemands, resource_demands


@dataclass(frozen=True)
class Contended:
    """A schedule with shared devices, cores and links.

    Attributes:
        schedule: of the last copy of the step.
        latency_us: [num_nodes] latencies in it; of nodes that overlap nothing, those of the isolated op.
    """

    schedule: Schedule
    latency_us: np.ndarray


def schedule_with_contention(
    graph: ExecutionGraph,
    latency_us: np.ndarray,
    lag_us: np.ndarray,
    isolated: Isolated,
    *,
    num_unrolled: int = 1,
    ready_us: np.ndarray | None = None,
) -> Contended:
    """Schedule one step like `schedule`, with nodes that `isolated` names stretched while they share.

    Args:
        graph: one step, or a whole window with num_unrolled=1.
        latency_us: [num_nodes] float64, finite.
        lag_us: [num_edges] float64, finite, not negative.
        isolated: which latencies are of isolated ops, and what they share. Other nodes are never stretched, but load
            what they run on.
        num_unrolled: copies of the step.
        ready_us: [num_nodes] earliest starts of the first copy; default 0.

    Raises:
        InputError: a latency, lag or ready time is not finite or missing, or the graph has a cycle.
    """
    latency_us, lag_us, ready_us = checked(graph, latency_us, lag_us, ready_us, num_unrolled)
    edges = timed_edges(graph)
    claimed = resource_demands(graph, latency_us, isolated.contention)
    served = np.broadcast_to(latency_us, (num_unrolled, graph.num_nodes))
    if may_share(claimed):
        steps = _steps(edges, lag_us[edges.index], cross_step_edges(graph, lane_ends(graph.nodes)), graph.num_nodes)
        state = idle(num_unrolled * graph.num_nodes, claimed)
        claimed = replace(claimed, line_us=np.minimum(claimed.line_us, latency_us))  # nothing spares more than all
        resource_demands_of = shared(claimed, isolated.nodes, isolated.contention.outer_bucket)
        served = simulate(num_unrolled, latency_us, ready_us, steps, resource_demands_of, state).reshape(served.shape)
    return Contended(schedule_copies(graph, edges, served, lag_us, ready_us), served[-1])


def may_share(claimed: ResourceDemands) -> bool:
    """Whether there is a transfer, or more threads than cores may meet."""
    return bool((claimed.role == MOVES).any() or np.isfinite(claimed.cores[claimed.place[claimed.role == RUNS]]).any())


def _steps(edges: TimedEdges, lag_us: np.ndarray, over: np.ndarray, num_nodes: int) -> Steps:
    """Outgoing edges by node, and what carries over; `lag_us` is [num_timed], `over` [2, num_carried]."""
    order, crossing = np.argsort(edges.src, kind="stable"), np.argsort(over[0], kind="stable")
    return Steps(
        first=_offsets(edges.src[order], num_nodes),
        dst=edges.dst[order],
        lag_us=lag_us[order],
        from_start=edges.from_start[order],
        num_before=np.bincount(edges.dst, minlength=num_nodes),
        first_cross_step=_offsets(over[0][crossing], num_nodes),
        cross_step=over[1][crossing],
        num_cross_step=np.bincount(over[1], minlength=num_nodes),
    )


def _offsets(node: np.ndarray, num_nodes: int) -> np.ndarray:
    """[num_nodes + 1] where each node's entries begin, of entries sorted by node."""
    return np.searchsorted(node, np.arange(num_nodes + 1)).astype(np.int64)


def shared(claimed: ResourceDemands, stretches: np.ndarray, bucket: Bucket | None) -> Shared:
    """Claims as the simulation takes them; `stretches` [num_nodes] bool, whose rate may fall below 1."""
    full_us, spared_share = (0.0, 0.0) if bucket is None else (bucket.full_us, bucket.spared_share)
    return Shared(
        claimed.role, claimed.place, claimed.slowdown, claimed.core_share, claimed.first_place, claimed.places,
        claimed.first_link, claimed.links, claimed.cores, stretches, claimed.line_us, full_us, spared_share,
    )  # fmt: skip


def idle(num_all: int, claimed: ResourceDemands) -> State:
    """The state in which nothing runs yet, of `num_all` nodes."""
    num_places = len(claimed.cores)
    return State(
        left_us=np.zeros(num_all), since_us=np.zeros(num_all), rate=np.ones(num_all),
        version=np.zeros(num_all, dtype=np.int64), changed=np.zeros(num_all, dtype=np.bool_),
        following=np.full(num_all, -1), preceding=np.full(num_all, -1), head=np.full(num_places, -1),
        running=np.zeros(num_places, dtype=np.int64), moving=np.zeros(num_places, dtype=np.int64),
        need=np.zeros(num_places), users=np.zeros(claimed.num_links, dtype=np.int64),
        tokens_us=np.full(claimed.num_links, np.inf), counted_us=np.zeros(claimed.num_links),
        spared_us=np.zeros(num_all), transfers=np.full(num_all, -1), num_transfers=np.zeros(1, dtype=np.int64),
    )  # fmt: skip
