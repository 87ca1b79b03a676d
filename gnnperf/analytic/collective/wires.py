"""What the links of a cluster give a group: bandwidth inside a machine and between machines, latency of hops."""

from __future__ import annotations

import numpy as np

from gnnperf.analytic.collective.calls import rings_of
from gnnperf.analytic.collective.protocols import Protocol
from gnnperf.hardware import POINT_TO_POINT, ClusterSpec


def hops_us(inside: np.ndarray, between: np.ndarray, cluster: ClusterSpec, protocol: Protocol) -> np.ndarray:
    """[n] us of hops inside machines and between them."""
    inner, outer = protocol.hop_inside * cluster.intra.latency_us, protocol.hop_between * cluster.inter.latency_us
    return inside * inner + between * outer


def adapter_bytes_per_s(cluster: ClusterSpec) -> float:
    """A rank's part of the ways out of its machine, or what leads to them, while all ranks use them."""
    own = cluster.inter.sustained_bytes_per_s * cluster.adapters / cluster.ranks_per_node
    return min(cluster.intra.sustained_bytes_per_s, own)


def inside_bytes_per_s(ranks: np.ndarray, cluster: ClusterSpec) -> np.ndarray:
    """Bandwidth [n] of a group inside a machine: all links of a device, or the share of its rings."""
    rings = rings_of(cluster)
    whole = cluster.intra.sustained_bytes_per_s
    if rings is None:
        return np.full(len(ranks), whole)
    most = max(rings.values())
    return np.array([whole * rings.get(int(r), most) / most for r in np.nan_to_num(ranks, nan=1.0)])


def across_bytes_per_s(kinds: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec) -> np.ndarray:
    """Bandwidth [n] of a group over several nodes.

    Rings use all adapters of a node at once; an all-to-all has a rank's part of them for the share of its bytes that
    leaves the node; one message has an adapter to itself; none is faster than the links inside.
    """
    inner, adapter = cluster.intra.sustained_bytes_per_s, cluster.inter.sustained_bytes_per_s
    ring = adapter * cluster.adapters
    own = ring / cluster.ranks_per_node
    outside = np.maximum(ranks - cluster.ranks_per_node, 0.0) / np.maximum(ranks - 1, 1.0)  # [n]
    direct = np.isin(kinds, POINT_TO_POINT)
    exchange = np.where(direct, adapter, own / np.maximum(outside, 1e-9))
    return np.minimum(inner, np.where((kinds == "all_to_all") | direct, exchange, ring))
