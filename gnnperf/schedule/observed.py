"""Measured latencies -> latencies of isolated ops: contention run backwards over a recording.

recorded      compute |== A ===|=== B ===|      A and B ran next to the transfer and took longer than by itself
              link       |== transfer ==|
by itself         A = integral over its recorded time of the rate at which it advanced, and so for B and the transfer

The rates are those of the second pass (progress.py), of what the recording says ran at each moment. So the latencies
found here, scheduled with contention, take the recorded time again, as far as the rates hold; and scheduled next to
something else (a slower link, more ranks on a core) they take what they would take there. A transfer that found tokens
in the bucket of its line would have taken longer by itself.
"""

from __future__ import annotations

import numba
import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import Contention
from gnnperf.schedule.contention import idle, may_share, shared
from gnnperf.schedule.progress import ENDS, STARTS, changes
from gnnperf.schedule.resource_demands import IDLE, resource_demands


@numba.njit(cache=True)
def _observe(node, what, when_us, latency_us, claimed, state):  # type: ignore[no-untyped-def] # pragma: no cover
    """Walk recorded events in order; returns [num_nodes] what of each latency is left without what others took."""
    isolated_us = latency_us.copy()
    heap = [(0.0, STARTS, 0, 0)]  # rates announce ends that no one waits for: here ends are recorded
    for event in range(len(node)):
        n, now = node[event], when_us[event]
        heap.clear()
        if what[event] == STARTS:
            state.left_us[n], state.since_us[n] = latency_us[n] + claimed.line_us[n], now  # with all that may be spared
            changes(n, 1, len(latency_us), now, claimed, state, heap)
        else:
            left_us = state.left_us[n] - (now - state.since_us[n]) * state.rate[n]
            if state.changed[n]:
                advanced_us = latency_us[n] + claimed.line_us[n] - max(left_us, 0.0)
                isolated_us[n] = min(advanced_us, latency_us[n] + state.spared_us[n])
            changes(n, -1, len(latency_us), now, claimed, state, heap)
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
    claimed = resource_demands(graph, latency_us, contention)
    if not may_share(claimed):
        return measured_us
    runs = np.flatnonzero((claimed.role != IDLE) & (start_us + latency_us > start_us))  # [num_running]
    node = np.concatenate([runs, runs])  # [2 * num_running] ends, then starts
    what = np.repeat([ENDS, STARTS], len(runs))
    when_us = np.concatenate([start_us[runs] + latency_us[runs], start_us[runs]])
    order = np.lexsort((what, when_us))
    everywhere = np.ones(graph.num_nodes, dtype=bool)
    state = idle(graph.num_nodes, claimed)
    result_us = _observe(
        node[order],
        what[order],
        when_us[order],
        latency_us,
        shared(claimed, everywhere, contention.outer_bucket),
        state,
    )
    return np.where(np.isfinite(measured_us) & (claimed.role != IDLE), result_us, measured_us)
