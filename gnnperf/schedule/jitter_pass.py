"""The pass of jitter: starts, and by how much a rank's time deviates since it last met each kind of group."""

from __future__ import annotations

import math

import numba
import numpy as np

# The expected maximum of normal draws: when the last of a group's ranks arrives.
#
# draws of M equal ranks   mean m, deviation s     E max = m + s e(M),  e(2) 0.56, e(8) 1.42, e(128) 2.59, e(16,384)
# 4.01 Blom 1958: e(M) ~ Phi^-1((M - 0.375) / (M + 0.25)); for large M as sqrt(2 ln M) (Gumbel 1958, extremes).
# Here the integrals themselves are taken, for groups whose ranks have unequal means and deviations too:
#
#     E max = a + int_0^inf (1 - F(a + u)) - F(a - u) du,     F(t) = prod Phi((t - m_p) / s_p)^n_p,     a = max m_p

REACH = 9.0  # deviations to either side; beyond it one of 10^18 draws lies
POINTS = 300  # of each side's integral (trapezoids)
ROOT_2 = math.sqrt(2.0)


@numba.njit(cache=True)
def _log_below(t, mean, deviation, count):  # type: ignore[no-untyped-def] # pragma: no cover
    """log F(t): all draws are below t."""
    result = 0.0
    for p in range(len(mean)):
        if deviation[p] > 0.0:
            share = 0.5 * math.erfc(-(t - mean[p]) / (deviation[p] * ROOT_2))
            if share <= 0.0:
                return -np.inf
            result += count[p] * math.log(share)
        elif t < mean[p]:
            return -np.inf
    return result


@numba.njit(cache=True)
def expected_maximum(mean, deviation, count):  # type: ignore[no-untyped-def] # pragma: no cover
    """(expected maximum, its variance) of independent normal draws.

    `mean`, `deviation`, `count` [num_parts]: of each kind of draw; one without a deviation is certain.
    """
    top, widest = mean.max(), deviation.max()
    if widest <= 0.0:
        return top, 0.0
    width = REACH * widest / POINTS
    first, second = 0.0, 0.0
    for i in range(POINTS + 1):
        u = i * width
        weight = width if 0 < i < POINTS else 0.5 * width
        above = 1.0 - math.exp(_log_below(top + u, mean, deviation, count))
        below = math.exp(_log_below(top - u, mean, deviation, count))
        first += weight * (above - below)
        second += weight * 2.0 * u * (above + below)
    later = max(first, 0.0)
    return top + later, max(second - first * first, 0.0)


STEADY, MOMENT = 0, 1  # rows of a state: a deviation (us), a variance (us^2)


@numba.njit(cache=True)
def _deviation(state, node, kind):  # type: ignore[no-untyped-def] # pragma: no cover
    return math.sqrt(state[STEADY, node, kind] ** 2 + state[MOMENT, node, kind])


@numba.njit(cache=True)
def meet(kind, steady, moment, remaining, contains):  # type: ignore[no-untyped-def] # pragma: no cover
    """Change a state, steady and moment [num_kinds], as a group of `kind` meets.

    Its ranks, and those of groups that it holds, go on together. In other groups what they differed by since they last
    met becomes the deviation of a maximum: `remaining` of its variance.
    """
    own_steady, own_moment = steady[kind], moment[kind]
    for other in range(len(steady)):
        if contains[kind, other]:
            steady[other], moment[other] = 0.0, 0.0
        else:
            recent = min(own_steady, steady[other])
            steady[other] += recent * (math.sqrt(remaining) - 1.0)
            recent = min(own_moment, moment[other])
            moment[other] += recent * (remaining - 1.0)


@numba.njit(cache=True)
def walk(constraints, latency_us, own, meetings, begin):  # type: ignore[no-untyped-def] # pragma: no cover
    """Earliest starts with the expected waits for the last rank.

    Args:
        constraints: order, in_first, by_dst, src, from_start as in engine.forward_pass, and lag_us [num_timed].
        latency_us: [num_nodes].
        own: deviation (us) and variance (us^2) that a node adds, [num_nodes] each.
        meetings: kind of group of a transfer [num_nodes], -1 elsewhere; ranks that arrive over an edge [num_timed];
            whether a kind holds another [num_kinds, num_kinds].
        begin: [2, num_nodes, num_kinds] state of nodes that wait for nothing.

    Returns:
        end_us [num_nodes], state at the end of each node [2, num_nodes, num_kinds], delay_us [num_nodes] of transfers.
    """
    order, in_first, by_dst, src, from_start, lag_us = constraints
    steady_us, moment_us2 = own
    kind_of, count, contains = meetings
    num_nodes, num_kinds = len(latency_us), contains.shape[0]
    start, end, delay = np.zeros(num_nodes), np.zeros(num_nodes), np.zeros(num_nodes)
    at_start, at_end = begin.copy(), np.zeros_like(begin)
    for position in range(len(order)):
        n = order[position]
        binding = -1
        for slot in range(in_first[n], in_first[n + 1]):
            e = by_dst[slot]
            moment = (start[src[e]] if from_start[e] else end[src[e]]) + lag_us[e]
            if moment > start[n] or (binding < 0 and moment >= start[n]):
                start[n], binding = moment, e
        if binding >= 0:
            state = at_start if from_start[binding] else at_end
            at_start[:, n] = state[:, src[binding]]
        if kind_of[n] >= 0 and binding >= 0:
            delay[n] = _wait(n, kind_of[n], in_first, by_dst, src, lag_us, end, count, contains, at_start, at_end)
            start[n] += delay[n]
        end[n] = start[n] + latency_us[n]
        for kind in range(num_kinds):
            at_end[STEADY, n, kind] = at_start[STEADY, n, kind] + steady_us[n]
            at_end[MOMENT, n, kind] = at_start[MOMENT, n, kind] + moment_us2[n]
    return end, at_end, delay


@numba.njit(cache=True)
def _wait(n, kind, in_first, by_dst, src, lag_us, end, count, contains, at_start, at_end):  # type: ignore[no-untyped-def] # pragma: no cover  # fmt: skip
    """How much later than the latest median the last rank arrives; the state of transfer `n` as its ranks meet."""
    parts = in_first[n + 1] - in_first[n]
    mean, deviation, draws = np.empty(parts), np.empty(parts), np.empty(parts)
    for i in range(parts):
        e = by_dst[in_first[n] + i]
        mean[i], draws[i] = end[src[e]] + lag_us[e], count[e]
        deviation[i] = _deviation(at_end, src[e], kind)
    latest, variance = expected_maximum(mean, deviation, draws)
    own = _deviation(at_start, n, kind)
    remaining = min(variance / (own * own), 1.0) if own > 0.0 else 0.0
    meet(kind, at_start[STEADY, n], at_start[MOMENT, n], remaining, contains)
    return latest - mean.max()
