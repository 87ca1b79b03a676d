"""The second pass: what overlaps shares cores and links, takes longer, and the step is scheduled again.

first pass    link   |== A ==|               every latency is of the isolated op
              link      |== B ==|
second pass   link   |== A ====|             A and B advance at half the rate while both cross the link
              link      |== B ====|

One walk through time (progress.py) gives the fixed point of "stretch intervals by their overlap, schedule again": the
rates at a moment depend on earlier moments only. The stretched latencies then go through the longest-path pass, which
gives slack and critical path. `isolated_us` walks a recording backwards through the same rates.
"""

from dataclasses import dataclass

import numba
import numpy as np

from gnnperf.graph import ExecutionGraph, Isolated, lane_ends
from gnnperf.hardware import Contention
from gnnperf.schedule.longest_path import Schedule, checked, cross_step_edges, schedule_copies, timed_edges
from gnnperf.schedule.progress import ENDS, STARTS, State, Steps, changes, simulate
from gnnperf.schedule.resource_demands import IDLE, ResourceDemands, offsets, resource_demands


@dataclass(frozen=True)
class Contended:
    """A schedule with shared cores and links."""

    schedule: Schedule  # of the last copy of the step
    latency_us: np.ndarray  # [num_nodes] latencies in it; of nodes that overlap nothing, those of the isolated op


def schedule_with_contention(
    graph: ExecutionGraph, latency_us: np.ndarray, lag_us: np.ndarray, isolated: Isolated, *, num_unrolled: int = 1,
    ready_us: np.ndarray | None = None,
) -> Contended:  # fmt: skip
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
    demands = resource_demands(graph, latency_us, isolated.contention, isolated.nodes)
    served = np.broadcast_to(latency_us, (num_unrolled, graph.num_nodes))
    if demands.may_share:
        over, num_nodes = cross_step_edges(graph, lane_ends(graph.nodes)), graph.num_nodes  # over: [2, num_carried]
        order, crossing = np.argsort(edges.src, kind="stable"), np.argsort(over[0], kind="stable")
        steps = Steps(
            first=offsets(edges.src[order], num_nodes), dst=edges.dst[order], lag_us=lag_us[edges.index][order],
            from_start=edges.from_start[order], num_before=np.bincount(edges.dst, minlength=num_nodes),
            first_cross_step=offsets(over[0][crossing], num_nodes), cross_step=over[1][crossing],
            num_cross_step=np.bincount(over[1], minlength=num_nodes),
        )  # fmt: skip
        state = _idle(num_unrolled * graph.num_nodes, demands)
        demands = demands._replace(line_us=np.minimum(demands.line_us, latency_us))  # nothing spares more than all
        times_us = (np.require(times, None, ["C", "W"]) for times in (latency_us, ready_us))  # see core.loops
        served = simulate(num_unrolled, *times_us, steps, demands, state).reshape(served.shape)
    return Contended(schedule_copies(graph, edges, served, lag_us, ready_us), served[-1])


def _idle(num_all: int, demands: ResourceDemands) -> State:
    """The state in which nothing runs yet, of `num_all` nodes."""
    num_places, num_links = len(demands.cores), int(demands.links.max(initial=-1)) + 1
    return State(
        left_us=np.zeros(num_all), since_us=np.zeros(num_all), rate=np.ones(num_all),
        version=np.zeros(num_all, dtype=np.int64), changed=np.zeros(num_all, dtype=np.bool_),
        following=np.full(num_all, -1), preceding=np.full(num_all, -1), head=np.full(num_places, -1),
        running=np.zeros(num_places, dtype=np.int64),
        need=np.zeros(num_places), users=np.zeros(num_links, dtype=np.int64),
        tokens_us=np.full(num_links, np.inf), counted_us=np.zeros(num_links),
        spared_us=np.zeros(num_all), transfers=np.full(num_all, -1), num_transfers=np.zeros(1, dtype=np.int64),
    )  # fmt: skip


@numba.njit(cache=True)
def _observe(node, what, when_us, latency_us, demands, state):  # type: ignore[no-untyped-def] # pragma: no cover
    """Walk recorded events in order; returns [num_nodes] what of each latency is left without what others took."""
    isolated_us = latency_us.copy()
    heap = [(0.0, STARTS, 0, 0)]  # rates announce ends that no one waits for: here ends are recorded
    for event in range(len(node)):
        n, now = node[event], when_us[event]
        heap.clear()
        if what[event] == STARTS:
            state.left_us[n], state.since_us[n] = latency_us[n] + demands.line_us[n], now  # with all that may be spared
            changes(n, np.int64(1), len(latency_us), now, demands, state, heap)
        else:
            left_us = state.left_us[n] - (now - state.since_us[n]) * state.rate[n]
            if state.changed[n]:
                advanced_us = latency_us[n] + demands.line_us[n] - max(left_us, 0.0)
                isolated_us[n] = min(advanced_us, latency_us[n] + state.spared_us[n])
            changes(n, np.int64(-1), len(latency_us), now, demands, state, heap)
    return isolated_us


def isolated_us(graph: ExecutionGraph, contention: Contention) -> np.ndarray:
    """[num_nodes] latencies without what overlapping work took, and with what tokens spared; NaN where not measured.

    It is the second pass backwards for transfers that take at least the time of their bytes on their line; of a shorter
    one the second pass would spare less.

    Args:
        graph: a recording with measured starts and latencies, all its steps.
        contention: what overlapping work takes from each other on the cluster it ran on.
    """
    measured_us = graph.nodes["latency_us"].to_numpy(np.float64)  # [num_nodes]
    start_us = graph.nodes["start_us"].to_numpy(np.float64)  # [num_nodes]
    latency_us = np.where(np.isfinite(start_us), np.nan_to_num(measured_us), 0.0)
    demands = resource_demands(graph, latency_us, contention)
    if not demands.may_share:
        return measured_us
    runs = np.flatnonzero((demands.role != IDLE) & (start_us + latency_us > start_us))  # [num_running]
    node = np.concatenate([runs, runs])  # [2 * num_running] ends, then starts
    what = np.repeat([ENDS, STARTS], len(runs))
    when_us = np.concatenate([start_us[runs] + latency_us[runs], start_us[runs]])
    order = np.lexsort((what, when_us))
    result_us = _observe(node[order], what[order], when_us[order], latency_us, demands, _idle(graph.num_nodes, demands))
    return np.where(np.isfinite(measured_us) & (demands.role != IDLE), result_us, measured_us)
