"""The one-pass discrete-event schedule: longest paths in (max, +) over a directed acyclic graph."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True)
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


@numba.njit(cache=True)
def forward_pass(order, in_first, by_dst, src, from_start, lag_us, latency_us, ready_us):  # type: ignore[no-untyped-def] # pragma: no cover
    """Earliest starts: start[v] = max(ready[v], max over edges of (start or end of u) + lag).

    Returns:
        start_us [num_nodes], binding edge [num_nodes] (-1: its ready time).
    """
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


@numba.njit(cache=True)
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
