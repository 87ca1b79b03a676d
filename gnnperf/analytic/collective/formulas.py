"""Collectives: latency plus bytes over bandwidth, by kind, algorithm and protocol.

latency = start-up + hops x hop latency + share x message / bandwidth        n ranks, message S per rank

Hops and shares by algorithm: gnnperf.hardware.collective_terms. A library has several protocols; a specification takes
the fastest, a platform's table has fitted models (gnnperf.analytic.collective.fit).

An all-reduce over several machines is the fastest of what NCCL chooses from (src/graph/tuning.cc): the ring, the tree
(chains inside machines, a double binary tree between them) and, where the switches inside machines reduce, NVLS with a
tree between them (since 2.18). With `all_reduce: hierarchical` the library reduces machine by machine (Horovod's
HOROVOD_HIERARCHICAL_ALLREDUCE, BlueConnect).
"""

from dataclasses import dataclass

import numpy as np

from gnnperf.analytic.collective.constants import CollectiveConstants
from gnnperf.analytic.collective.model import rings_of
from gnnperf.analytic.constants import AnalyticConstants
from gnnperf.hardware import (
    BARRIER,
    HIERARCHICAL,
    POINT_TO_POINT,
    ClusterSpec,
    in_network_terms,
    ring_hops_between_nodes,
    ring_terms,
    tree_terms,
)

# Protocols of collective libraries: start-up, hops and bandwidth of each, relative to what a specification gives.
#
# NCCL's numbers are its own estimates, by which it chooses (NVIDIA/nccl 2.20, src/graph/tuning.cc: baseLat, hwLat of
# the ring, and the factors on busBw). A specification's start-up (AnalyticConstants.collective_floor_us, 14 us) and a
# link's latency_us (NVLink 1.9, network 4.0) are those of LL128, so LL128 is 1.
#
# LL writes 4 bytes of data next to 4 of flag, so that no fence is needed: half of the bytes are wasted, and more by
# short stores. LL128 has 8 of flag in 128. Simple waits for fences and has all of the bandwidth.

SOFTNESS = 24.0  # power of the soft minimum; two equal times give one 3 % shorter
REDUCING = ("all_reduce", "reduce")


@dataclass(frozen=True)
class Protocol:
    """One way of a library to move bytes."""

    name: str
    start: float  # start-up, as a share of the specification's
    hop_inside: float  # latency of a hop inside a machine, as a share of the link's
    hop_between: float  # ... and between machines.
    reducing: float  # bandwidth of all-reduce and reduce, as a share of the link's sustained bandwidth
    moving: float  # ... of all others.

    def bandwidth_share(self, kinds: np.ndarray) -> np.ndarray:
        """[n] by kind."""
        return np.where(np.isin(kinds, REDUCING), self.reducing, self.moving)


PLAIN = (Protocol("plain", 1.0, 1.0, 1.0, 1.0, 1.0),)  # gloo, and whatever else has one protocol
SIMPLE = Protocol("Simple", 8.4 / 14.0, 3.4 / 1.9, 14.0 / 4.0, 1.0, 1.0)
NCCL = (
    Protocol("LL", 6.6 / 14.0, 0.6 / 1.9, 2.7 / 4.0, 1 / 4, 1 / 3),
    Protocol("LL128", 1.0, 1.0, 1.0, 0.92, 0.92),
    SIMPLE,
)
BY_DEVICE_KIND = {"gpu": NCCL, "cpu": PLAIN}

# The tree's bandwidth next to the ring's, and what a switch that reduces takes to start and can carry.
TREE_BANDWIDTH = 0.92 * 0.85
IN_NETWORK_START = 23.0 / 14.0  # hwLat of NVLS
IN_NETWORK_BANDWIDTH = 5 / 6


def soft_minimum(candidates: np.ndarray) -> np.ndarray:
    """The shortest of several times, a little shorter where two are close.

    (sum of x^-p)^(-1/p) is below the minimum and grows with every x: what makes no candidate slower makes the result
    not slower either.
    """
    shortest = candidates.min(axis=0)  # [n]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(candidates > shortest, shortest / candidates, 1.0)  # [k, n] 0 where infinite
    return shortest * (ratio**SOFTNESS).sum(axis=0) ** (-1.0 / SOFTNESS)


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


# All-reduce over machines in levels, g ranks on each of m machines, S bytes of one rank's input:
#
# machine by machine   reduce-scatter of S inside, all-reduce of S/g between ranks of equal index, all-gather inside;
#                      three rings, one after the other (Jia et al. 2018, section 4.3; Cho et al. 2019, BlueConnect)
# switches and tree    the switch of a machine reduces, a double binary tree carries S/g of each rank between machines,
#                      the switch multicasts; pipelined: the slower rules (NCCL 2.18, NVLS_TREE in tuning.cc)

NUM_STAGES = 3  # reduce-scatter, all-reduce, all-gather


def machine_by_machine_us(
    size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float, protocol: Protocol
) -> np.ndarray:
    """[n] us of an all-reduce in three stages, by one protocol."""
    nodes = np.ceil(ranks / cluster.ranks_per_node)  # [n]
    own = ranks / nodes  # [n] ranks of a machine
    hops = hops_us(2 * np.maximum(own - 1, 0.0), 2 * (nodes - 1), cluster, protocol)
    inside = 2 * (own - 1) / own * size / inside_bytes_per_s(own, cluster)  # [n] s
    between = 2 * (nodes - 1) / nodes * size / own / adapter_bytes_per_s(cluster)  # [n] s
    return NUM_STAGES * protocol.start * start_us + hops + (inside + between) / protocol.reducing * 1e6


def switches_and_tree_us(
    kinds: np.ndarray, size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float
) -> np.ndarray:
    """[n] us of an all-reduce over machines whose switches reduce; infinite for all others."""
    nodes = np.fmax(np.ceil(ranks / cluster.ranks_per_node), 1.0)  # [n]
    own = ranks / nodes  # [n] ranks of a machine
    _, share = in_network_terms(own)
    hops = hops_us(np.zeros(len(ranks)), 2 * np.ceil(np.log2(nodes)), cluster, SIMPLE)
    inside = share * size / (cluster.intra.sustained_bytes_per_s * IN_NETWORK_BANDWIDTH)  # [n] s
    between = 2 * size / own / (adapter_bytes_per_s(cluster) * TREE_BANDWIDTH)  # [n] s
    result = IN_NETWORK_START * start_us + hops + np.maximum(inside, between) * 1e6
    return np.where((kinds == "all_reduce") & (nodes > 1), result, np.inf)


IN_NETWORK = "in_network_reduction"  # key of a cluster's metadata: "nvls" where switches reduce inside machines


def fitted_collective_us(
    kinds: np.ndarray, message_bytes: np.ndarray, group_size: np.ndarray, cluster: ClusterSpec,
    constants: AnalyticConstants, fitted: CollectiveConstants,
) -> np.ndarray:  # fmt: skip
    """As collective_us, with the platform's own models wherever its table had the kind on the group's link."""
    specified = collective_us(kinds, message_bytes, group_size, cluster, constants)
    several = group_size > 1  # one rank by itself moves nothing
    nodes = np.ceil(np.maximum(group_size, 1) / cluster.ranks_per_node).astype(int)  # [n]
    if cluster.all_reduce == HIERARCHICAL:  # not what the table measured
        several &= (kinds != "all_reduce") | (nodes == 1)
    if cluster.adapters < cluster.ranks_per_node:  # nor has a table adapters that ranks share
        several &= nodes == 1
    requested = (each[several] for each in (kinds, message_bytes, group_size, nodes, specified))
    own = fitted.latency_us(*requested)
    specified[several] = np.where(np.isnan(own), specified[several], own)
    return specified


def collective_us(
    kinds: np.ndarray, message_bytes: np.ndarray, group_size: np.ndarray, cluster: ClusterSpec,
    constants: AnalyticConstants,
) -> np.ndarray:  # fmt: skip
    """Latency of collective nodes by specification, from the last arrival to the end of the transfer.

    A group no larger than `ranks_per_node` is taken to share a node: nodes do not hold the ranks of a group.

    [n] `message_bytes` are what each rank sends, NaN unknown; [n] `group_size` is -1 where unknown. `constants` have
    the start-up per device kind. [n] us; NaN where kind, size or group are unknown.
    """
    ranks = np.where(group_size > 0, group_size, np.nan).astype(float)  # [n]
    size = np.where(kinds == BARRIER, 0.0, message_bytes)  # [n]
    start_us = constants.collective_floor_us[cluster.device.kind]
    protocols = BY_DEVICE_KIND[cluster.device.kind]
    candidates = [_ring_us(kinds, size, ranks, cluster, start_us, protocol) for protocol in protocols]
    if len(protocols) > 1:
        candidates += [_tree_us(kinds, size, ranks, cluster, start_us, protocol) for protocol in protocols]
    if IN_NETWORK in cluster.metadata:
        candidates.append(_in_network_us(kinds, size, ranks, cluster, start_us))
        candidates.append(switches_and_tree_us(kinds, size, ranks, cluster, start_us))
    fastest = soft_minimum(np.stack(candidates))
    if cluster.all_reduce != HIERARCHICAL:
        return fastest
    staged = soft_minimum(np.stack([machine_by_machine_us(size, ranks, cluster, start_us, p) for p in protocols]))
    return np.where((kinds == "all_reduce") & (ranks > cluster.ranks_per_node), staged, fastest)


def _ring_us(
    kinds: np.ndarray, size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float, protocol: Protocol
) -> np.ndarray:
    """[n] us of a ring, of an exchange between pairs and of one message."""
    hops, share = ring_terms(kinds, ranks)  # [n], [n]
    nodes = np.ceil(ranks / cluster.ranks_per_node)  # [n] machines the group spans
    across, inside = across_bytes_per_s(kinds, ranks, cluster), inside_bytes_per_s(ranks, cluster)  # [n], [n]
    bandwidth = np.where(nodes > 1, across, inside)
    between = ring_hops_between_nodes(hops, ranks, nodes)
    latency = hops_us(hops - between, between, cluster, protocol)
    return protocol.start * start_us + latency + share * size / bandwidth / protocol.bandwidth_share(kinds) * 1e6


def _tree_us(
    kinds: np.ndarray, size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float, protocol: Protocol
) -> np.ndarray:
    """[n] us of an all-reduce over several machines by trees; infinite for all others."""
    nodes = np.ceil(ranks / cluster.ranks_per_node)  # [n]
    inside, between, share = tree_terms(ranks, np.fmax(nodes, 1.0))
    bandwidth = across_bytes_per_s(kinds, ranks, cluster) * TREE_BANDWIDTH * protocol.reducing  # [n] bytes/s
    result = protocol.start * start_us + hops_us(inside, between, cluster, protocol) + share * size / bandwidth * 1e6
    return np.where((kinds == "all_reduce") & (nodes > 1), result, np.inf)


def _in_network_us(
    kinds: np.ndarray, size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float
) -> np.ndarray:
    """[n] us of an all-reduce that the switch inside a machine computes; infinite for all others."""
    _, share = in_network_terms(ranks)  # the way to the switch and back is in the start-up
    bandwidth = cluster.intra.sustained_bytes_per_s * IN_NETWORK_BANDWIDTH
    result = IN_NETWORK_START * start_us + share * size / bandwidth * 1e6
    return np.where((kinds == "all_reduce") & (ranks > 1) & (ranks <= cluster.ranks_per_node), result, np.inf)
