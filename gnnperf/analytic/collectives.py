"""Collectives: latency plus bytes over bandwidth, by kind, for ring algorithms.

latency = start-up + hops x hop latency + share x message / bandwidth        n ranks, message S per rank

kind             hops      share of S on the busiest link
all_reduce       2(n-1)    2(n-1)/n      Thakur, Rabenseifner, Gropp 2005, section 4.5; NCCL's ring
reduce_scatter   n-1       (n-1)/n       S is the whole input
all_gather       n-1       n-1           S is one rank's part
all_to_all       n-1       (n-1)/n       S is all a rank sends
broadcast, reduce, gather, scatter  n-1  1   pipelined ring; S is the message at the root
send, recv       1         1
barrier          2(n-1)    0
"""

from __future__ import annotations

import numpy as np

from gnnperf.analytic.constants import AnalyticConstants
from gnnperf.hardware.spec import ClusterSpec, LinkSpec

# kind -> (hops as multiple of n-1, share of S: numerator in n-1, divided by n)
RING = {
    "all_reduce": (2.0, 2.0, True),
    "reduce_scatter": (1.0, 1.0, True),
    "all_gather": (1.0, 1.0, False),
    "all_to_all": (1.0, 1.0, True),
}
PIPELINED = ("broadcast", "reduce", "gather", "scatter")
POINT_TO_POINT = ("send", "recv", "send_recv", "p2p")
BARRIER = "barrier"
KINDS = (*RING, *PIPELINED, *POINT_TO_POINT, BARRIER)


def collective_us(
    kinds: np.ndarray,
    message_bytes: np.ndarray,
    group_size: np.ndarray,
    cluster: ClusterSpec,
    constants: AnalyticConstants,
) -> np.ndarray:
    """Latency of collective nodes, from the last arrival to the end of the transfer.

    A group no larger than `ranks_per_node` is taken to share a node: nodes do not say which ranks a group has.

    Args:
        kinds: [n] kind of collective.
        message_bytes: [n] bytes each rank sends; NaN unknown.
        group_size: [n] ranks of the group; -1 unknown.
        cluster: links and ranks per node.
        constants: start-up per device kind.

    Returns:
        [n] us; NaN where kind, size or group are unknown.
    """
    ranks = np.where(group_size > 0, group_size, np.nan).astype(float)  # [n]
    others = ranks - 1
    hops, share = _terms(kinds, ranks)  # [n], [n]
    size = np.where(kinds == BARRIER, 0.0, message_bytes)  # [n]
    nodes = np.ceil(ranks / cluster.ranks_per_node)  # [n] machines the group spans
    crosses = nodes > 1
    bandwidth = np.where(crosses, _across(kinds, ranks, cluster), _sustained(cluster.intra))  # [n] bytes/s
    rounds = hops / np.maximum(others, 1.0)  # [n] times around the ring
    outer = np.where(crosses, rounds * np.minimum(nodes, others), 0.0)  # [n] hops between machines
    latency = outer * cluster.inter.latency_us + (hops - outer) * cluster.intra.latency_us
    return constants.collective_floor_us[cluster.device.kind] + latency + share * size / bandwidth * 1e6


def _terms(kinds: np.ndarray, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hops and share of the message [n], NaN for kinds without a formula."""
    hops, share = np.full(len(kinds), np.nan), np.full(len(kinds), np.nan)
    others = ranks - 1
    for kind, (hop_factor, share_factor, divided) in RING.items():
        here = kinds == kind
        hops[here] = (hop_factor * others)[here]
        share[here] = (share_factor * others / (ranks if divided else 1.0))[here]
    pipelined = np.isin(kinds, PIPELINED)
    hops[pipelined], share[pipelined] = others[pipelined], np.minimum(others, 1.0)[pipelined]
    direct = np.isin(kinds, POINT_TO_POINT)
    hops[direct], share[direct] = 1.0, 1.0
    barrier = kinds == BARRIER
    hops[barrier], share[barrier] = 2 * others[barrier], 0.0
    return hops, share


def _across(kinds: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec) -> np.ndarray:
    """Bandwidth [n] bytes/s of a group over several nodes.

    Rings use all adapters of a node at once; an all-to-all uses a rank's own for the share of its bytes that leaves the
    node; neither is faster than the links inside.
    """
    inner, own = _sustained(cluster.intra), _sustained(cluster.inter)
    outside = np.maximum(ranks - cluster.ranks_per_node, 0.0) / np.maximum(ranks - 1, 1.0)  # [n]
    direct = np.isin(kinds, POINT_TO_POINT)
    exchange = np.where(direct, own, own / np.maximum(outside, 1e-9))
    ring = own * cluster.ranks_per_node
    return np.minimum(inner, np.where((kinds == "all_to_all") | direct, exchange, ring))


def _sustained(link: LinkSpec) -> float:
    return link.bandwidth_bytes_per_s * link.sustained_bandwidth_share
