"""Work that runs at one moment shares what it runs on: an event simulation with rates of progress.

Between two events every running node advances at a constant rate, at most 1 (docs/concepts/contention.md). This is
processor sharing (Kleinrock 1967, "Time-shared systems"). An end moves whenever a rate changes; a node whose rate stays
1 ends at exactly start + latency.

A line that a token bucket limits spares a transfer the time of the tokens at its begin. Tokens are counted in time at
the limit, and all bytes take some (virtual scheduling, ITU-T I.371): below 0, bytes wait for those to come.

    60 us of bytes   |10 start|4: 40 at once|20 as tokens come|  5  |10 start|19 at once ...
    tokens           40 -> -20                                14    19 -> -41
"""

import heapq
from typing import NamedTuple

import numba
import numpy as np

from gnnperf.schedule.resource_demands import IDLE, RUNS

ENDS, STARTS = 0, 1  # at one moment ends come first: what only touches does not overlap


class Steps(NamedTuple):
    """Constraints of one step, in the form the simulation walks them: outgoing edges of n, and what carries over."""

    first: np.ndarray  # [num_nodes + 1] outgoing edges of node n: first[n] to first[n + 1]
    dst: np.ndarray  # [num_timed]
    lag_us: np.ndarray  # [num_timed]
    from_start: np.ndarray  # [num_timed] bool
    num_before: np.ndarray  # [num_nodes] incoming edges
    first_cross_step: np.ndarray  # [num_nodes + 1] nodes of the next copy that wait for the end of n
    cross_step: np.ndarray
    num_cross_step: np.ndarray  # [num_nodes] of those waits that end at n


class State(NamedTuple):
    """What runs now. Nodes are those of all copies, [num_all]."""

    left_us: np.ndarray  # work left at `since`
    since_us: np.ndarray
    rate: np.ndarray
    version: np.ndarray  # of the end event that holds
    changed: np.ndarray  # bool: its rate was not always 1
    following: np.ndarray  # doubly linked lists of running work by place, in both directions; -1 none
    preceding: np.ndarray
    head: np.ndarray  # [num_places]
    running: np.ndarray  # [num_places]
    need: np.ndarray  # [num_places] cores that transfers need
    users: np.ndarray  # [num_links]
    tokens_us: np.ndarray  # [num_links] in the line's bucket at `counted`; below 0 while bytes wait for them
    counted_us: np.ndarray
    spared_us: np.ndarray  # [num_all] by tokens that were there
    transfers: np.ndarray  # [num_all] those that move data, in the first num_transfers[0] slots
    num_transfers: np.ndarray  # [1]


@numba.njit(cache=True)
def _re_rate(node, rate, now, state, heap):  # type: ignore[no-untyped-def] # pragma: no cover
    if rate == state.rate[node]:
        return
    state.left_us[node] = max(state.left_us[node] - (now - state.since_us[node]) * state.rate[node], 0.0)
    state.since_us[node] = now
    state.rate[node] = rate
    state.changed[node] = True
    state.version[node] += 1
    if rate > 0.0:
        heapq.heappush(heap, (now + state.left_us[node] / rate, ENDS, node, state.version[node]))


@numba.njit(cache=True)
def _link_rate(n, shared, state):  # type: ignore[no-untyped-def] # pragma: no cover
    most = 1
    for slot in range(shared.first_link[n], shared.first_link[n + 1]):
        most = max(most, state.users[shared.links[slot]])
    return 1.0 / most


@numba.njit(cache=True)
def _transfer_rate(n, shared, state):  # type: ignore[no-untyped-def] # pragma: no cover
    if not shared.stretches[n]:
        return 1.0
    rate = 1.0
    for slot in range(shared.first_place[n], shared.first_place[n + 1]):
        place = shared.places[slot]
        if shared.core_share[n] > 0.0 and state.need[place] > shared.cores[place]:
            rate = min(rate, shared.cores[place] / state.need[place])
    return rate * _link_rate(n, shared, state)


@numba.njit(cache=True)
def _take_tokens(n, now, shared, state):  # type: ignore[no-untyped-def] # pragma: no cover
    """Time that the tokens of its lines spare. All that it sends takes tokens, those there or those still to come."""
    there_us = shared.line_us[n]
    for slot in range(shared.first_link[n], shared.first_link[n + 1]):
        link = shared.links[slot]
        tokens_us = min(state.tokens_us[link] + now - state.counted_us[link], shared.full_us)
        if state.users[link] == 0:
            tokens_us = max(tokens_us, 0.0)  # what is through waits for none
        there_us = min(there_us, max(tokens_us, 0.0))
        state.tokens_us[link], state.counted_us[link] = tokens_us - shared.line_us[n], now
    return there_us * shared.spared_share if shared.stretches[n] else 0.0


@numba.njit(cache=True)
def _refresh_work(place, num_nodes, now, shared, state, heap):  # type: ignore[no-untyped-def] # pragma: no cover
    node, running, free = state.head[place], state.running[place], shared.cores[place] - state.need[place]
    while node >= 0:
        fits = running <= free or not shared.stretches[node % num_nodes]
        _re_rate(node, 1.0 if fits else max(free, 0.0) / running, now, state, heap)
        node = state.following[node]


@numba.njit(cache=True)
def _work_changes(node, by, num_nodes, now, shared, state, heap):  # type: ignore[no-untyped-def] # pragma: no cover
    """Work begins (by = 1) or ends (by = -1) at its place."""
    place = shared.place[node % num_nodes]
    if by > 0:
        state.following[node], state.preceding[node] = state.head[place], -1
        if state.head[place] >= 0:
            state.preceding[state.head[place]] = node
        state.head[place] = node
    else:
        before, after = state.preceding[node], state.following[node]
        if before >= 0:
            state.following[before] = after
        else:
            state.head[place] = after
        if after >= 0:
            state.preceding[after] = before
    state.running[place] += by
    _refresh_work(place, num_nodes, now, shared, state, heap)


@numba.njit(cache=True)
def _transfer_changes(node, by, num_nodes, now, shared, state, heap):  # type: ignore[no-untyped-def] # pragma: no cover
    """A transfer begins (by = 1) or ends (by = -1)."""
    n, count = node % num_nodes, state.num_transfers
    if by > 0:
        state.transfers[count[0]] = node
        count[0] += 1
        spared_us = _take_tokens(n, now, shared, state) if shared.line_us[n] > 0.0 else 0.0
        if spared_us > 0.0:  # it has less to do
            state.spared_us[node] = spared_us
            state.left_us[node] -= spared_us
            state.changed[node] = True
            state.version[node] += 1
            heapq.heappush(heap, (now + state.left_us[node] / state.rate[node], ENDS, node, state.version[node]))
    else:
        slot = 0
        while state.transfers[slot] != node:
            slot += 1
        count[0] -= 1
        state.transfers[slot] = state.transfers[count[0]]
    for at in range(shared.first_link[n], shared.first_link[n + 1]):
        state.users[shared.links[at]] += by
    state.need[:] = 0.0
    for slot in range(count[0]):  # one that waits for its link needs less of a core
        m = state.transfers[slot] % num_nodes
        if shared.core_share[m] > 0.0:
            need = shared.core_share[m] * _link_rate(m, shared, state)
            for at in range(shared.first_place[m], shared.first_place[m + 1]):
                state.need[shared.places[at]] += need
    for slot in range(count[0]):
        other = state.transfers[slot]
        _re_rate(other, _transfer_rate(other % num_nodes, shared, state), now, state, heap)
    for at in range(shared.first_place[n], shared.first_place[n + 1]):
        _refresh_work(shared.places[at], num_nodes, now, shared, state, heap)
    for slot in range(count[0]):  # a link that is shared no longer changes needs elsewhere
        m = state.transfers[slot] % num_nodes
        for at in range(shared.first_place[m], shared.first_place[m + 1]):
            _refresh_work(shared.places[at], num_nodes, now, shared, state, heap)


@numba.njit(cache=True)
def changes(node, by, num_nodes, now, shared, state, heap):  # type: ignore[no-untyped-def] # pragma: no cover
    """A node with a demand begins (by = 1) or ends (by = -1): rates of what runs change with it."""
    if shared.role[node % num_nodes] == RUNS:
        _work_changes(node, by, num_nodes, now, shared, state, heap)
    else:
        _transfer_changes(node, by, num_nodes, now, shared, state, heap)


@numba.njit(cache=True)
def simulate(num_copies, latency_us, ready_us, steps, shared, state):  # type: ignore[no-untyped-def] # pragma: no cover
    """Run `num_copies` of a step one after the other; returns [num_copies * num_nodes] latencies as they were served.

    What never ends because constraints form a cycle keeps its latency; `timed_edges` refuses such graphs.
    """
    num_nodes = len(latency_us)
    num_all = num_copies * num_nodes
    waits, begin = np.empty(num_all, dtype=np.int64), np.zeros(num_all)
    served = np.empty(num_all)
    heap = [(0.0, STARTS, 0, 0)]  # (moment, what, node, version); never empty, so that its type is known
    heap.pop()
    for node in range(num_all):
        n = node % num_nodes
        waits[node], served[node] = steps.num_before[n], latency_us[n]
        if node < num_nodes:
            begin[node] = ready_us[n]
        else:
            waits[node] += steps.num_cross_step[n]
        if waits[node] == 0:
            heapq.heappush(heap, (begin[node], STARTS, node, 0))
    while len(heap) > 0:
        now, what, node, version = heapq.heappop(heap)
        n, copy = node % num_nodes, node // num_nodes
        shares = shared.role[n] != IDLE
        if what == STARTS:
            heapq.heappush(heap, (now + latency_us[n], ENDS, node, 0))
            if shares:
                state.left_us[node], state.since_us[node] = latency_us[n], now
                changes(node, np.int64(1), num_nodes, now, shared, state, heap)  # numba compiles anew for a literal
        elif version != state.version[node]:
            continue
        else:
            state.version[node] += 1
            if shares:
                changes(node, np.int64(-1), num_nodes, now, shared, state, heap)
            if state.changed[node]:
                served[node] = max(now - begin[node], latency_us[n] - state.spared_us[node])
        for e in range(steps.first[n], steps.first[n + 1]):
            if steps.from_start[e] == (what == STARTS):
                after = copy * num_nodes + steps.dst[e]
                begin[after] = max(begin[after], now + steps.lag_us[e])
                waits[after] -= 1
                if waits[after] == 0:
                    heapq.heappush(heap, (begin[after], STARTS, after, 0))
        if what == ENDS and copy + 1 < num_copies:
            for slot in range(steps.first_cross_step[n], steps.first_cross_step[n + 1]):
                after = (copy + 1) * num_nodes + steps.cross_step[slot]
                begin[after] = max(begin[after], now)
                waits[after] -= 1
                if waits[after] == 0:
                    heapq.heappush(heap, (begin[after], STARTS, after, 0))
    return served
